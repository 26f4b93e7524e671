// Package leasetable implements the engine's sessions with rows of a table.
//
// A session is a row with an expiry by the database's clock. Its locks are rows
// that refer to it. The tables are for SQLite, for PostgreSQL behind a
// transaction pooler, and for systems that only speak PostgreSQL's SQL.
package leasetable

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// PostgreSQL is the dialect of lease tables in PostgreSQL behind a transaction
// pooler, in CockroachDB, and in other systems with PostgreSQL's protocol and
// SQL.
//
// Each statement is a transaction of its own and carries its numbers in its
// text. A pooler may send the next one to another server process.
type PostgreSQL struct{}

// Traits says that one session serves any number of locks.
func (PostgreSQL) Traits() dialect.Traits {
	return dialect.Traits{Name: "postgres", Lease: dialect.DefaultLease, CloseTimeout: endTimeout}
}

// Open creates the tables if they are missing, and a session in them.
func (PostgreSQL) Open(ctx context.Context, db *sql.DB, set dialect.Settings) (dialect.Session, error) {
	t := &postgresTables{pool: dbconn.Pool{DB: db, Find: set.Socket, Ready: postgres.Tidy}, timeout: max(callBound(set)/2, time.Millisecond)}
	err := t.prove(ctx)
	var s *session
	if err == nil {
		s, err = openSession(ctx, t, set, &t.pool.Socket)
	}
	if err != nil {
		return nil, dialect.Fail(err)
	}
	return s, nil
}

// postgresTables implements tables in PostgreSQL's SQL.
type postgresTables struct {
	pool    dbconn.Pool
	schema  string        // quoted, with its dot
	genuine bool          // PostgreSQL itself
	logged  bool          // tokens are places in the write-ahead log
	timeout time.Duration // for a lock, in PostgreSQL; for a statement elsewhere
}

// sql returns a statement of s. It fills in the schema, the session's id, its
// lease, and more pairs of a word and its replacement.
func (t *postgresTables) sql(s *stamp, statement string, more ...string) string {
	words := append([]string{"SCHEMA.", t.schema, "SESSION", strconv.FormatInt(s.id, 10), "LEASE", postgres.Interval(s.lease)}, more...)
	return strings.NewReplacer(words...).Replace(statement)
}

// meQuery begins each statement of a session. It renews the session's row and
// locks it. It selects no row in three cases:
//
//   - The session has expired.
//   - A later statement was here.
//   - A statement that was acknowledged is lost.
const meQuery = `me AS (UPDATE SCHEMA.latchkey_sessions SET expires = pg_catalog.clock_timestamp() + LEASE, statement = NUMBER
	WHERE id = SESSION AND statement < NUMBER AND statement >= ACKNOWLEDGED AND expires > pg_catalog.clock_timestamp()BOUNDED RETURNING id)`

// boundedQuery has a statement wait for a lock less long than the caller waits
// for it. Otherwise it would still be in flight when the caller asks what it has
// done. If the server has no such setting, the pool ends the statement.
const boundedQuery = `bounded AS MATERIALIZED (SELECT pg_catalog.set_config('lock_timeout', 'TIMEOUT', true) AS set)`

// me returns the beginning of the next statement of s.
func (t *postgresTables) me(s *stamp) string {
	query, bounded := "WITH "+meQuery, ""
	if t.genuine {
		query, bounded = "WITH "+boundedQuery+", "+meQuery, " AND (SELECT pg_catalog.count(set) FROM bounded) = 1"
	}
	return t.sql(s, query, "NUMBER", strconv.FormatInt(s.next(), 10), "ACKNOWLEDGED", strconv.FormatInt(s.acked, 10),
		"BOUNDED", bounded, "TIMEOUT", strconv.FormatInt(t.timeout.Milliseconds(), 10))
}

// alive begins the columns of such a statement: whether the session is alive. A
// crash must not take a grant or a renewal back. So the commit waits for the
// disk even where synchronous_commit is off.
const alive = ` SELECT (SELECT pg_catalog.count(*) FROM me),
	CASE pg_catalog.current_setting('synchronous_commit') WHEN 'off' THEN pg_catalog.set_config('synchronous_commit', 'local', true) END`

// run runs a statement that begins with me, and scans its columns after those
// of alive. It returns errExpired if the session is not alive.
func (t *postgresTables) run(ctx context.Context, s *stamp, query string, dest ...any) error {
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

// open implements tables.
func (t *postgresTables) open(ctx context.Context, s *stamp, holder string) error {
	if err := t.reap(ctx, s); err != nil {
		return err
	}
	return t.pool.Exec(ctx, t.sql(s, `INSERT INTO SCHEMA.latchkey_sessions (id, expires, statement, holder)
		VALUES (SESSION, pg_catalog.clock_timestamp() + LEASE, 0, HOLDER)`, "HOLDER", dialect.Quoted(holder)))
}

// reapStatements delete the rows of dead sessions.
//
// They pass over a session that is being renewed at this moment. They look again
// at one that was renewed before its row was locked (READ COMMITTED).
var reapStatements = []string{
	`DELETE FROM SCHEMA.latchkey_sessions WHERE expires <= pg_catalog.clock_timestamp() AND id IN (SELECT id FROM SCHEMA.latchkey_sessions
		WHERE expires <= pg_catalog.clock_timestamp() ORDER BY id FOR UPDATE SKIP LOCKED)`,
	`DELETE FROM SCHEMA.latchkey_locks WHERE session NOT IN (SELECT id FROM SCHEMA.latchkey_sessions)`,
}

// reap deletes the rows of dead sessions.
func (t *postgresTables) reap(ctx context.Context, s *stamp) error {
	for _, statement := range reapStatements {
		if err := t.pool.Exec(ctx, t.sql(s, statement)); err != nil {
			return err
		}
	}
	return nil
}

// held implements tables.
func (t *postgresTables) held(ctx context.Context, s *stamp) ([]dialect.Key, error) {
	// Each earlier statement has ended after this one, and the next one sees
	// what it did.
	if err := t.run(ctx, s, t.me(s)+alive); err != nil {
		return nil, err
	}
	var list string
	err := t.pool.Row(ctx, t.sql(s, `SELECT `+keyList+`
		FROM SCHEMA.latchkey_locks WHERE session = SESSION`), &list)
	if err != nil {
		return nil, err
	}
	return postgres.ParseKeys(list)
}

// end deletes a session's rows. A statement that is still in flight may add
// rows. They have no effect without the session, and the next reap deletes
// them.
func (t *postgresTables) end(ctx context.Context, s *stamp) error {
	return t.pool.Exec(ctx, t.sql(s, `WITH session AS (DELETE FROM SCHEMA.latchkey_sessions WHERE id = SESSION RETURNING id),
		locks AS (DELETE FROM SCHEMA.latchkey_locks WHERE session = SESSION RETURNING session)
		SELECT (SELECT pg_catalog.count(*) FROM session), (SELECT pg_catalog.count(*) FROM locks)`))
}

// message is a part of a statement that writes an empty message to the write-
// ahead log, if from has a row. Its place there is a token.
func message(from string) string {
	return `,
	message AS MATERIALIZED (SELECT pg_catalog.pg_logical_emit_message(true, 'latchkey', '') AS lsn FROM ` + from + `)`
}

const (
	// messageColumns say where the message is: system, timeline, place, and
	// life of the server. They are 0 if there is none.
	messageColumns = `, coalesce((SELECT system_identifier FROM message, pg_catalog.pg_control_system()), 0),
		coalesce((SELECT ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(lsn), 8))::bit(32)::bigint FROM message), 0),
		coalesce((SELECT (lsn - '0/0')::bigint FROM message), 0), ` + postgres.Life

	// messageSize is less than a message takes in the write-ahead log, with its
	// header and prefix alone. So all places up to it belong to this message.
	messageSize = 48
)

// token implements tables.
func (t *postgresTables) token(ctx context.Context, s *stamp) (token dialect.Token, n int64, err error) {
	var life int64
	query, lifeOf := message("me")+alive+messageColumns, "0"
	if n = messageSize; !t.logged {
		query, n = counterQuery, 1
	}
	if t.genuine {
		lifeOf = postgres.Life
	}
	query = t.me(s) + t.sql(s, query, "RANDOM", postgresTypes.random, "LIFE", lifeOf)
	if err = t.run(ctx, s, query, &token.System, &token.Epoch, &token.Number, &life); err == nil && t.genuine {
		token.Here, token.Outlives = postgres.Here(life), true
	}
	return token, n, err
}

// counterQuery increments a counter that is never behind the clock, in
// microseconds. So tokens grow even if a failover has lost the last ones.
const counterQuery = `,
	counted AS (INSERT INTO SCHEMA.latchkey_tokens AS c (only_row, system, number)
		SELECT 1, RANDOM, (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000.0)::bigint FROM me
		ON CONFLICT (only_row) DO UPDATE SET number = greatest(c.number + 1, excluded.number) RETURNING system, number)` +
	alive + `, coalesce((SELECT system FROM counted), 0), 0, coalesce((SELECT number FROM counted), 0), LIFE`
