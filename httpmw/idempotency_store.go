package httpmw

import (
	"context"
	"database/sql"
	"errors"
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
	fingerprint bytea       NOT NULL,    -- SHA-256 of method, URL, Content-Type and body
	status      integer,                 -- null while the handler runs, which nobody else sees
	header      bytea,
	body        bytea,
	created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS latchkey_answers_created_at ON latchkey_answers (created_at)`

const (
	claimSQL = `INSERT INTO latchkey_answers (key, fingerprint) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING`
	findSQL  = `SELECT fingerprint, coalesce(status, 0), coalesce(header, ''), coalesce(body, '') FROM latchkey_answers WHERE key = $1`
	fillSQL  = `UPDATE latchkey_answers SET status = $2, header = $3, body = $4 WHERE key = $1`
	storeSQL = `INSERT INTO latchkey_answers (key, fingerprint, status, header, body) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (key) DO NOTHING`
)

const (
	// claimPatience bounds how long a request waits for the transaction of another
	// one with its key, beside which the lock has let it in; and for a connection.
	claimPatience = 2 * time.Second

	// commitPatience bounds what is left to do after the handler, whose client may have gone.
	commitPatience = 5 * time.Second
)

// An answerStore is the table of [IdempotencySchema].
type answerStore struct {
	db        *sql.DB
	txOptions sql.TxOptions
}

// A claim is what was found under a key: a stored answer, or nothing, and then it
// is the transaction in which the key's row was inserted.
//
// Invariant: as long as the transaction is open, nobody else can insert that row; who
// tries waits for its end. So of two for whom there is no lock one alone commits.
type claim struct {
	stored *storedAnswer // nil: the key is new, and tx open
	tx     *sql.Tx
	ctx    context.Context // of tx's own statements
	cancel context.CancelFunc
	asked  payload
}

// errInFlight: another transaction has the key, and goes on.
var errInFlight = errors.New("httpmw: the key is in flight")

// claim finds the answer to asked, or begins the transaction that makes it. ctx bounds
// claim, not the transaction.
func (s *answerStore) claim(ctx context.Context, asked payload) (_ *claim, err error) {
	c, err := s.begin(ctx, asked)
	if err != nil {
		return nil, ended(ctx, storeError(err))
	}
	defer func() {
		if err != nil || c.stored != nil {
			c.rollback()
		}
	}()
	bound, stop := context.WithTimeout(ctx, claimPatience)
	defer stop()
	disarm := context.AfterFunc(bound, c.cancel)
	inserted, err := affected(c.tx.ExecContext(c.ctx, claimSQL, asked.key[:], asked.fingerprint[:]))
	if err == nil && !inserted {
		c.stored, err = find(c.ctx, c.tx, asked)
	}
	if !disarm() { // c.ctx has ended, whatever else has come of it
		return nil, ended(ctx, errInFlight)
	}
	return c, ended(ctx, storeError(err))
}

// begin begins the transaction. Its context ends with ctx, or after a while, until
// begin has returned, and then not by itself any more.
func (s *answerStore) begin(ctx context.Context, asked payload) (*claim, error) {
	bound, stop := context.WithTimeout(ctx, claimPatience)
	defer stop()
	txCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	disarm := context.AfterFunc(bound, cancel)
	tx, err := s.db.BeginTx(txCtx, &s.txOptions)
	if err == nil && !disarm() {
		_ = tx.Rollback()
		err = bound.Err()
	}
	if err != nil {
		cancel()
		if sqlState(err) == "" {
			err = errNoTx
		}
		return nil, err
	}
	return &claim{tx: tx, ctx: txCtx, cancel: cancel, asked: asked}, nil
}

// find reads the answer that is stored for asked, in tx.
func find(ctx context.Context, tx *sql.Tx, asked payload) (*storedAnswer, error) {
	a := &storedAnswer{replayed: true}
	var header []byte
	err := tx.QueryRowContext(ctx, findSQL, asked.key[:]).Scan(&a.fingerprint, &a.status, &header, &a.body)
	if err != nil { // sql.ErrNoRows, if it was forgotten, or is younger than the transaction
		return nil, err
	}
	a.header, err = decodeHeader(header)
	return a, err
}

// commit stores a and commits it with the effect.
func (c *claim) commit(a *storedAnswer) error {
	bound := time.AfterFunc(commitPatience, c.cancel)
	defer bound.Stop()
	filled, err := affected(c.tx.ExecContext(c.ctx, fillSQL, c.asked.key[:], a.status, encodeHeader(a.header), a.body))
	switch {
	case err != nil:
		return storeError(err)
	case !filled: // the row's insertion was rolled back, to a savepoint of before or by SQL
		return ErrTxUnusable
	}
	return storeError(c.tx.Commit())
}

// rollback undoes what is not committed.
func (c *claim) rollback() {
	_ = c.tx.Rollback()
	c.cancel()
}

// store stores a without an effect. If somebody else was first, theirs is the
// answer.
func (s *answerStore) store(ctx context.Context, asked payload, a *storedAnswer) (*storedAnswer, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitPatience)
	defer cancel()
	tx, err := s.db.BeginTx(ctx, nil) // behind a transaction pooler arguments need one
	if err != nil {
		return nil, storeError(err)
	}
	defer tx.Rollback()
	first, err := affected(tx.ExecContext(ctx, storeSQL, asked.key[:], asked.fingerprint[:], a.status, encodeHeader(a.header), a.body))
	if err == nil && !first {
		if a, err = find(ctx, tx, asked); err == nil {
			return a.to(asked)
		}
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return nil, storeError(err)
	}
	return a, nil
}

// affected reports whether a statement changed a row.
func affected(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// ended is ctx's error in place of err, if ctx has ended: it is the reason.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
