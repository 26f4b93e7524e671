package leasetable

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// LeaseTable locks with rows of a table instead of advisory locks, in PostgreSQL
// behind a transaction pooler, in CockroachDB and in what else speaks PostgreSQL's
// protocol and SQL.
//
// Each statement is a transaction by itself and carries its numbers in its text: a
// pooler may send the next one to another server process.
type PostgreSQL struct{}

// Traits says that one session serves for any number of locks.
func (PostgreSQL) Traits() dialect.Traits {
	return dialect.Traits{Lease: dialect.DefaultLease, CloseTimeout: endTimeout}
}

// Open makes the tables if they are missing, and a session in them.
func (PostgreSQL) Open(ctx context.Context, db *sql.DB, set dialect.Settings) (dialect.Session, error) {
	t := &postgresTables{pool: dbconn.Pool{DB: db, Find: set.Socket, Ready: postgres.Tidy}, timeout: max(callBound(set)/2, time.Millisecond)}
	if err := t.prove(ctx); err != nil {
		return nil, dialect.Fail(err)
	}
	s, err := openLease(ctx, t, set, &t.pool.Socket)
	return s, dialect.Fail(err)
}

// postgresTables is the lease table in what speaks PostgreSQL's SQL.
type postgresTables struct {
	pool    dbconn.Pool
	schema  string        // quoted, with its dot
	genuine bool          // PostgreSQL itself
	logged  bool          // tokens are places in the write-ahead log
	timeout time.Duration // for a lock, in PostgreSQL; for a statement elsewhere
}

// me begins a statement of s: it renews the session's row and is empty if that
// has expired, or if a later statement was here, or one that was acknowledged is
// lost. The row stays locked until the statement's end.
//
// The statement does not wait for a lock for as long as its caller does: else it would be
// under way when that asks what it has done. (Where there is no such setting run sees to it.)
func (t *postgresTables) me(s *stamp) string {
	n := strconv.FormatInt(s.next(), 10)
	query := "WITH "
	patient := ""
	if t.genuine {
		query += "patience AS MATERIALIZED (SELECT pg_catalog.set_config('lock_timeout', '" + strconv.FormatInt(t.timeout.Milliseconds(), 10) + "', true) AS set), "
		patient = " AND (SELECT pg_catalog.count(set) FROM patience) = 1"
	}
	return query + "me AS (UPDATE " + t.schema + "latchkey_sessions SET expires = " + t.expiry(s) + ", statement = " + n +
		" WHERE id = " + strconv.FormatInt(s.id, 10) + " AND statement < " + n + " AND statement >= " + strconv.FormatInt(s.acked, 10) +
		" AND expires > pg_catalog.clock_timestamp()" + patient + " RETURNING id)"
}

func (t *postgresTables) expiry(s *stamp) string {
	return "pg_catalog.clock_timestamp() + " + postgres.Interval(s.lease)
}

// alive begins the list of what such a statement returns: whether the session
// is alive. A grant or a renewal that a crash takes back would be one too many,
// so its commit waits for the disk also where other transactions do not.
const alive = ` SELECT (SELECT pg_catalog.count(*) FROM me),
	CASE pg_catalog.current_setting('synchronous_commit') WHEN 'off' THEN pg_catalog.set_config('synchronous_commit', 'local', true) END`

// run runs a statement that begins with me, and scans what it returns beside
// whether the session is alive. Where the server does not give up on a lock by itself, it is
// made to, in time for a question of what it has done.
func (t *postgresTables) run(ctx context.Context, s *stamp, query string, dest ...any) error {
	if !t.genuine {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.timeout)
		defer cancel()
	}
	var (
		count int
		sync  sql.NullString
	)
	if err := t.pool.Row(ctx, query, append([]any{&count, &sync}, dest...)...); err != nil {
		return err
	}
	if count == 0 {
		return errExpired
	}
	s.acknowledge()
	return nil
}

func (t *postgresTables) open(ctx context.Context, s *stamp, holder string) error {
	if err := t.reap(ctx); err != nil {
		return err
	}
	return t.pool.Exec(ctx, "INSERT INTO "+t.schema+"latchkey_sessions (id, expires, statement, holder) VALUES ("+
		strconv.FormatInt(s.id, 10)+", "+t.expiry(s)+", 0, "+dialect.Quoted(holder)+")")
}

// reap deletes what dead sessions have left.
//
// A session that is being renewed at this moment is passed over, and one that was renewed before
// its row was locked is looked at again (READ COMMITTED).
func (t *postgresTables) reap(ctx context.Context) error {
	sessions := t.schema + "latchkey_sessions"
	for _, statement := range []string{
		"DELETE FROM " + sessions + " WHERE expires <= pg_catalog.clock_timestamp() AND id IN (SELECT id FROM " + sessions +
			" WHERE expires <= pg_catalog.clock_timestamp() ORDER BY id FOR UPDATE SKIP LOCKED)",
		"DELETE FROM " + t.schema + "latchkey_locks WHERE session NOT IN (SELECT id FROM " + sessions + ")",
		"DELETE FROM " + t.schema + "latchkey_secret_checks WHERE session NOT IN (SELECT id FROM " + sessions + ")",
	} {
		if err := t.pool.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (t *postgresTables) held(ctx context.Context, s *stamp) ([]dialect.Key, error) {
	// In a statement of its own: one that is still under way has ended after that,
	// and the next one sees what it did.
	if err := t.run(ctx, s, t.me(s)+alive); err != nil {
		return nil, err
	}
	var list sql.NullString
	err := t.pool.Row(ctx, "SELECT pg_catalog.string_agg(key_space::text || ':' || key_id::text, ',') FROM "+t.schema+"latchkey_locks WHERE session = "+
		strconv.FormatInt(s.id, 10), &list)
	if err != nil {
		return nil, err
	}
	return postgres.ParseKeys(list.String)
}

// end deletes a session's rows. What a statement that is still under way adds to them counts for nothing
// without the session, and goes with the next reap.
func (t *postgresTables) end(ctx context.Context, s *stamp) error {
	id := strconv.FormatInt(s.id, 10)
	return t.pool.Exec(ctx, "WITH session AS (DELETE FROM "+t.schema+"latchkey_sessions WHERE id = "+id+" RETURNING id),"+
		" locks AS (DELETE FROM "+t.schema+"latchkey_locks WHERE session = "+id+" RETURNING session),"+
		" checks AS (DELETE FROM "+t.schema+"latchkey_secret_checks WHERE session = "+id+" RETURNING session)"+
		" SELECT (SELECT pg_catalog.count(*) FROM session), (SELECT pg_catalog.count(*) FROM locks), (SELECT pg_catalog.count(*) FROM checks)")
}
