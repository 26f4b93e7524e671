package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// schema makes the tables. That the ledger's event_id is not unique is for the
// show: so an effect that is done twice would be seen. Yours may well be.
const schema = `
CREATE TABLE IF NOT EXISTS processed_events (
	event_id     text        PRIMARY KEY,
	payload_hash bytea       NOT NULL, -- SHA-256 of the body: an event that comes again must be the same
	processed_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS ledger (
	id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	event_id text   NOT NULL,
	account  text   NOT NULL,
	amount   bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS ledger_event_id ON ledger (event_id)`

// migrate makes the tables where url's search_path has new tables made.
func migrate(ctx context.Context, url string) error {
	db, err := openPool(url, 1)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return errors.New("the tables cannot be made: " + reason(err))
	}
	return nil
}

// checkSchema reports whether the tables are there.
func checkSchema(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `SELECT event_id, payload_hash, processed_at, id, account, amount
		FROM processed_events JOIN ledger USING (event_id) LIMIT 0`)
	if err != nil {
		return errors.New(reason(err))
	}
	return nil
}

// poisonous reports whether the database has refused what the event says, and will
// again: bad data (class 22) or a broken constraint (23).
func poisonous(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && (strings.HasPrefix(server.Code, "22") || strings.HasPrefix(server.Code, "23"))
}

// reason is err in words that may be logged: a driver's own name hosts and users.
func reason(err error) string {
	var server *pgconn.PgError
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "the event's row in processed_events was deleted just now"
	case !errors.As(err, &server):
		return "the database does not answer"
	}
	switch server.Code {
	case "42P01", "42703":
		return "the tables processed_events and ledger are not in the search_path as they should be: run webhook -migrate, or set search_path in DATABASE_URL (SQLSTATE " + server.Code + ")"
	case "42501":
		return "the role may not use the tables processed_events and ledger (SQLSTATE 42501)"
	}
	return fmt.Sprintf("the database refuses (SQLSTATE %s)", server.Code)
}
