package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

const (
	// claimSQL inserts the row of a key. It waits for another transaction with
	// that key, bounded by a lock_timeout for this statement alone. From then
	// on the transaction may be idle for maxIdle, unless the server is
	// stricter. The result is the table's full name, since the handler may SET
	// another search_path.
	claimSQL = `INSERT INTO latchkey_responses (key, fingerprint) SELECT $1::bytea, $2::bytea
		WHERE pg_catalog.set_config('lock_timeout', -- after the old one is kept
			CASE WHEN pg_catalog.set_config('latchkey.lock_timeout', pg_catalog.current_setting('lock_timeout'), true) IS NOT NULL THEN '%[1]d' END, true) IS NOT NULL
		ON CONFLICT (key) DO NOTHING
		RETURNING (SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname)
			FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE c.oid = latchkey_responses.tableoid),
		pg_catalog.set_config('lock_timeout', pg_catalog.current_setting('latchkey.lock_timeout'), true),
		CASE WHEN pg_catalog.current_setting('idle_in_transaction_session_timeout')::interval NOT BETWEEN '1 millisecond' AND '%[2]d milliseconds'
			THEN pg_catalog.set_config('idle_in_transaction_session_timeout', '%[2]d', true) END`

	findSQL = `SELECT fingerprint, status, header, body FROM latchkey_responses WHERE key = $1`

	// fillSQL changes only a row of this transaction. After a COMMIT by the
	// handler there is none.
	fillSQL = `UPDATE %s SET status = $2, header = $3, body = $4 WHERE key = $1 AND xmin = pg_catalog.pg_current_xact_id()::xid`
)

// postgres is PostgreSQL. All settings are local to the transaction, so the
// pool may connect through a transaction pooler. An insert without a unique key
// fails (ON CONFLICT).
var postgres = &kind{
	dialect: "postgres", table: func() table { return &postgresTable{} },
	forgetSQL: `DELETE FROM latchkey_responses WHERE key IN (
		SELECT key FROM latchkey_responses WHERE created_at < pg_catalog.now() - %d * interval '1 microsecond'
		ORDER BY created_at LIMIT %d FOR UPDATE SKIP LOCKED)`,
}

// A postgresTable is a table of PostgreSQL.
type postgresTable struct {
	maxIdle time.Duration
	maxWait time.Duration
	name    string // with its schema; set by insert
}

func (t *postgresTable) enter(_ context.Context, _ *sql.Conn, maxIdle, maxWait time.Duration) error {
	t.maxIdle, t.maxWait = maxIdle, maxWait
	return nil
}

func (t *postgresTable) insert(ctx context.Context, tx *sql.Tx, p payload) (bool, error) {
	query := fmt.Sprintf(claimSQL, t.maxWait.Milliseconds(), t.maxIdle.Milliseconds())
	var lockTimeout, maxIdle sql.NullString // as set
	err := tx.QueryRowContext(ctx, query, p.key[:], p.fingerprint[:]).Scan(&t.name, &lockTimeout, &maxIdle)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return true, err
}

func (*postgresTable) find(ctx context.Context, tx *sql.Tx, p payload) *sql.Row {
	return tx.QueryRowContext(ctx, findSQL, p.key[:])
}

func (t *postgresTable) fill(ctx context.Context, tx *sql.Tx, p payload, a *storedResponse) (int64, error) {
	return affected(tx.ExecContext(ctx, fmt.Sprintf(fillSQL, t.name), p.key[:], a.status, a.encodeHeader(), a.body))
}

func (*postgresTable) leave(context.Context, *sql.Conn, bool) error { return nil }
