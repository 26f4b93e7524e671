package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// schema makes the tables. The ledger's event_id is not unique, so that a test
// would see an effect that happened twice. Yours may be unique.
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

// An outcome is the response to an event, the first time and every time after.
type outcome struct {
	Event string `json:"event"`
	Entry int64  `json:"entry,omitempty"` // in the ledger; 0 if it has been removed since

	again bool // it had been processed before
}

func (o outcome) send(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	if o.again {
		w.Header().Set("Webhook-Replayed", "true")
	}
	_ = json.NewEncoder(w).Encode(o)
}

var errOtherPayload = errors.New("the event has come before with another payload")

// once books e, unless it has been booked, and returns the outcome.
//
// Invariant: the row of e in processed_events is committed with its entry in
// the ledger, or neither is. The row is inserted first. Another process may
// work on e after all, if it froze and lost its lock. Then the primary key
// makes one of the two wait for the other's commit. The lock saves work and
// waiting; the key decides.
func (rc *receiver) once(ctx context.Context, e event) (outcome, error) {
	tx, err := rc.db.BeginTx(ctx, nil)
	if err != nil {
		return outcome{}, err
	}
	defer tx.Rollback()
	// If this process freezes, the server ends the transaction, and the event
	// is free.
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("SET LOCAL idle_in_transaction_session_timeout = %d", rc.maxIdle.Milliseconds())); err != nil {
		return outcome{}, err
	}
	result, err := tx.ExecContext(ctx,
		"INSERT INTO processed_events (event_id, payload_hash) VALUES ($1, $2) ON CONFLICT (event_id) DO NOTHING",
		e.ID, e.payload[:])
	if err != nil {
		return outcome{}, err
	}
	if n, err := result.RowsAffected(); err != nil {
		return outcome{}, err
	} else if n == 0 {
		return before(ctx, tx, e)
	}
	done, err := book(ctx, tx, e)
	if err != nil {
		return outcome{}, err
	}
	// After an error the commit may have happened or not. The sender sends the
	// event again, and the next call finds out.
	return done, tx.Commit()
}

// book is the effect. All of it is in tx.
func book(ctx context.Context, tx *sql.Tx, e event) (outcome, error) {
	o := outcome{Event: e.ID}
	err := tx.QueryRowContext(ctx,
		"INSERT INTO ledger (event_id, account, amount) VALUES ($1, $2, $3) RETURNING id",
		e.ID, e.Account, e.Amount).Scan(&o.Entry)
	return o, err
}

// before returns the outcome of an event that has been processed before, also if
// its entry has been removed from the ledger.
func before(ctx context.Context, tx *sql.Tx, e event) (outcome, error) {
	var payload []byte
	o := outcome{Event: e.ID, again: true}
	err := tx.QueryRowContext(ctx,
		"SELECT payload_hash, coalesce(ledger.id, 0) FROM processed_events LEFT JOIN ledger USING (event_id) WHERE event_id = $1",
		e.ID).Scan(&payload, &o.Entry)
	if err == nil && !bytes.Equal(payload, e.payload[:]) {
		err = errOtherPayload
	}
	return o, err
}

// migrate makes the tables, in the first schema of the search_path.
func migrate(ctx context.Context, databaseURL string) error {
	db, err := openPool(databaseURL, 1)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return errors.New("the tables cannot be made: " + reason(err))
	}
	return nil
}

// checkSchema returns an error if the tables are not there.
func checkSchema(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `SELECT event_id, payload_hash, processed_at, id, account, amount
		FROM processed_events JOIN ledger USING (event_id) LIMIT 0`)
	if err != nil {
		return errors.New(reason(err))
	}
	return nil
}

// poisonous reports whether the database has rejected the event, and will reject
// it again: for bad data (class 22) or a broken constraint (class 23).
func poisonous(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && (strings.HasPrefix(server.Code, "22") || strings.HasPrefix(server.Code, "23"))
}

// reason returns err in words that may be logged. The driver's own words name
// hosts and users.
func reason(err error) string {
	var server *pgconn.PgError
	switch {
	case errors.As(err, new(*pgconn.ParseConfigError)):
		return "DATABASE_URL is not understood"
	case !errors.As(err, &server):
		return "the database does not respond"
	case server.Code == "42P01" || server.Code == "42703":
		return "the tables processed_events and ledger are not in the search_path as they should be: run webhook -migrate, or set search_path in DATABASE_URL"
	}
	return fmt.Sprintf("the database rejects it (SQLSTATE %s)", server.Code)
}
