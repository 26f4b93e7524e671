package httpmw

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// IdempotencySchema makes the one table that an [Idempotency] needs, with a row
// for each key: run it once, or take it into your migrations. The search_path of
// the pool must find it, and its role needs SELECT, INSERT, UPDATE and DELETE.
//
// Whose keys they are stands there as a hash only. The answers stand there as
// they are; [Idempotency.Forget] removes old ones.
const IdempotencySchema = `CREATE TABLE IF NOT EXISTS latchkey_answers (
	key         bytea       PRIMARY KEY, -- SHA-256 of namespace, principal, route and key
	fingerprint bytea       NOT NULL,    -- SHA-256 of method, host, URL, Content-Type and body
	status      integer,                 -- null while the handler runs, which nobody else sees
	header      bytea,
	body        bytea,
	created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS latchkey_answers_created_at ON latchkey_answers (created_at)`

const (
	// claimSQL waits for another one's transaction with that key, but not for long: only
	// here lock_timeout is ours. From then on the transaction may be idle for so long,
	// unless the server is stricter. It returns the table's full name: the handler may SET
	// another search_path.
	claimSQL = `INSERT INTO latchkey_answers (key, fingerprint) SELECT $1::bytea, $2::bytea
		WHERE set_config('lock_timeout', -- after the old one is kept
			CASE WHEN set_config('latchkey.lock_timeout', current_setting('lock_timeout'), true) IS NOT NULL THEN '%[1]d' END, true) IS NOT NULL
		ON CONFLICT (key) DO NOTHING
		RETURNING (SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname)
			FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE c.oid = latchkey_answers.tableoid),
		set_config('lock_timeout', current_setting('latchkey.lock_timeout'), true),
		CASE WHEN current_setting('idle_in_transaction_session_timeout')::interval NOT BETWEEN '1 millisecond' AND '%[2]d milliseconds'
			THEN set_config('idle_in_transaction_session_timeout', '%[2]d', true) END`

	effectSQL = `SAVEPOINT latchkey_effect`
	undoSQL   = `ROLLBACK TO SAVEPOINT latchkey_effect`

	findSQL = `SELECT fingerprint, coalesce(status, 0), coalesce(header, ''), coalesce(body, '') FROM latchkey_answers WHERE key = $1`

	// fillSQL changes a row of this transaction alone: after a COMMIT of the handler's
	// own there is none.
	fillSQL = `UPDATE %s SET status = $2, header = $3, body = $4 WHERE key = $1 AND xmin = pg_catalog.pg_current_xact_id()::xid`
)

const (
	// claimPatience bounds how long a request waits for the transaction of another
	// one with its key, beside which the lock has let it in; and for a connection.
	claimPatience = 2 * time.Second

	// replyPatience bounds how long the server may take for a statement of ours, beside
	// that.
	replyPatience = 3 * time.Second

	// commitPatience bounds what is left to do after the handler, whose client may have gone.
	commitPatience = 5 * time.Second
)

// An answerStore is the table of [IdempotencySchema].
type answerStore struct {
	db        *sql.DB
	txOptions sql.TxOptions
	maxIdle   time.Duration // of the handler's transaction
	strays    atomic.Int32  // steps that were given up and are not over
}

// A claim is what was found under a key: a stored answer, or nothing, and then it
// is the transaction in which the key's row was inserted.
//
// Invariant: as long as the transaction is open, nobody else can insert that row; who
// tries waits for its end. So of two for whom there is no lock one alone commits.
type claim struct {
	stored *storedAnswer // nil: the key is new, and tx open
	asked  payload
	table  string // its full name

	transaction
}

// errInFlight: another transaction has the key, and goes on.
var errInFlight = errors.New("httpmw: the key is in flight")

// claim finds the answer to asked, or begins the transaction that makes it. ctx bounds
// claim, not the transaction.
func (s *answerStore) claim(ctx context.Context, asked payload) (_ *claim, err error) {
	c := &claim{asked: asked}
	if err := c.begin(ctx, s); err != nil {
		return nil, ended(ctx, storeError(err))
	}
	defer func() {
		if err != nil || c.stored != nil {
			c.end()
		}
	}()
	err = c.step(ctx, claimPatience+replyPatience, c.insert)
	if sqlState(err) == lockNotAvailable {
		return nil, errInFlight
	}
	return c, ended(ctx, storeError(err))
}

// insert inserts the key's row and begins the handler's part, or finds the answer.
func (c *claim) insert() error {
	query := fmt.Sprintf(claimSQL, claimPatience.Milliseconds(), c.store.maxIdle.Milliseconds())
	var lockTimeout, maxIdle sql.NullString // as set
	err := c.tx.QueryRowContext(c.ctx, query, c.asked.key[:], c.asked.fingerprint[:]).Scan(&c.table, &lockTimeout, &maxIdle)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		c.stored, err = find(c.ctx, c.tx, c.asked)
	case err == nil:
		_, err = c.tx.ExecContext(c.ctx, effectSQL)
	}
	return err
}

// find reads the answer that is stored for asked, in tx.
func find(ctx context.Context, tx *sql.Tx, asked payload) (*storedAnswer, error) {
	a := &storedAnswer{replayed: true}
	var header []byte
	err := tx.QueryRowContext(ctx, findSQL, asked.key[:]).Scan(&a.fingerprint, &a.status, &header, &a.body)
	if err != nil { // sql.ErrNoRows, if it was forgotten, or is younger than the transaction
		return nil, err
	}
	return a, a.decodeHeader(header)
}

// commit stores a and commits it, with the effect or, if that is to be undone,
// without.
func (c *claim) commit(ctx context.Context, a *storedAnswer, undo bool) error {
	defer c.end()
	return effectError(c.step(context.WithoutCancel(ctx), commitPatience, func() error {
		if undo {
			if _, err := c.tx.ExecContext(c.ctx, undoSQL); err != nil {
				return err
			}
		}
		if err := c.fill(a); err != nil {
			return err
		}
		return c.tx.Commit()
	}))
}

// fill completes the key's row.
func (c *claim) fill(a *storedAnswer) error {
	result, err := c.tx.ExecContext(c.ctx, fmt.Sprintf(fillSQL, c.table), c.asked.key[:], a.status, a.encodeHeader(), a.body)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return ErrTxUnusable // the handler has ended the transaction, by SQL
}

// ended is ctx's error in place of err, if ctx has ended: it is the reason.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
