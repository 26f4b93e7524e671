package dialect

import (
	"context"
	"database/sql"
	"strconv"
	"time"
)

// LeaseTable locks with rows of a table instead of advisory locks, in PostgreSQL
// behind a transaction pooler, in CockroachDB and in what else speaks PostgreSQL's
// protocol and SQL.
//
// Each statement is a transaction by itself and carries its numbers in its text: a
// pooler may send the next one to another server process.
type LeaseTable struct{}

// Traits says that one session serves for any number of locks.
func (LeaseTable) Traits() Traits { return Traits{Lease: defaultLease, Parting: endPatience} }

// Open makes the tables if they are missing, and a session in them.
func (LeaseTable) Open(ctx context.Context, db *sql.DB, set Settings) (Session, error) {
	t := &postgresTables{pool: pool{db: db, find: set.Socket, ready: tidy}, patience: max(callBound(set)/2, time.Millisecond)}
	if err := t.prove(ctx); err != nil {
		return nil, Fail(err)
	}
	s, err := openLease(ctx, t, set, &t.pool.flight)
	return s, Fail(err)
}

// postgresTables is the lease table in what speaks PostgreSQL's SQL.
type postgresTables struct {
	pool     pool
	schema   string        // quoted, with its dot
	genuine  bool          // PostgreSQL itself
	logged   bool          // tokens are places in the write-ahead log
	patience time.Duration // for a lock, in PostgreSQL; for a statement elsewhere
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
		query += "patience AS MATERIALIZED (SELECT pg_catalog.set_config('lock_timeout', '" + strconv.FormatInt(t.patience.Milliseconds(), 10) + "', true) AS set), "
		patient = " AND (SELECT pg_catalog.count(set) FROM patience) = 1"
	}
	return query + "me AS (UPDATE " + t.schema + "latchkey_sessions SET expires = " + t.expiry(s) + ", statement = " + n +
		" WHERE id = " + strconv.FormatInt(s.id, 10) + " AND statement < " + n + " AND statement >= " + strconv.FormatInt(s.acked, 10) +
		" AND expires > pg_catalog.clock_timestamp()" + patient + " RETURNING id)"
}

func (t *postgresTables) expiry(s *stamp) string {
	return "pg_catalog.clock_timestamp() + " + interval(s.lease)
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
		ctx, cancel = context.WithTimeout(ctx, t.patience)
		defer cancel()
	}
	var (
		count int
		sync  sql.NullString
	)
	if err := t.pool.row(ctx, query, append([]any{&count, &sync}, dest...)...); err != nil {
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
	return t.pool.exec(ctx, "INSERT INTO "+t.schema+"latchkey_sessions (id, expires, statement, holder) VALUES ("+
		strconv.FormatInt(s.id, 10)+", "+t.expiry(s)+", 0, "+quoted(holder)+")")
}

// exchange gives back in one statement and takes in the next: PostgreSQL would not
// see in one what another part of it has deleted, and CockroachDB
// refuses two changes of one table.
func (t *postgresTables) exchange(ctx context.Context, s *stamp, b *Batch, drawn *tokens) error {
	if len(b.Release) > 0 {
		if err := t.release(ctx, s, b); err != nil {
			return err
		}
	}
	if len(b.Try)+len(b.Any) > 0 {
		return t.take(ctx, s, b, drawn)
	}
	if len(b.Release) > 0 {
		return nil
	}
	return t.run(ctx, s, t.me(s)+alive)
}

func (t *postgresTables) release(ctx context.Context, s *stamp, b *Batch) error {
	var list sql.NullString
	err := t.run(ctx, s, t.me(s)+`, given AS (DELETE FROM `+t.schema+`latchkey_locks
		WHERE session = (SELECT id FROM me) AND (key_space, key_id) IN (SELECT s, k FROM `+unnestKeys(b.Release)+`)
		RETURNING key_space, key_id)`+
		alive+`, (SELECT pg_catalog.string_agg(key_space::text || ':' || key_id::text, ',') FROM given)`, &list)
	if err != nil {
		return err
	}
	given, err := parseKeys(list.String)
	if err != nil {
		return err
	}
	notGiven(b, given)
	return nil
}

// take takes what is free of b. Keys whose holder is dead are freed first, and
// those asked for again; as are groups that lost what they had chosen to somebody else.
func (t *postgresTables) take(ctx context.Context, s *stamp, b *Batch, drawn *tokens) error {
	w := newWishes(b)
	reaped := false
	for {
		stale, err := t.takeOnce(ctx, s, w, drawn)
		if err != nil {
			return err
		}
		if stale && !reaped {
			if err := t.reap(ctx); err != nil {
				return err
			}
			reaped = true
		} else if !w.contested {
			break
		}
		if !w.again() {
			break
		}
	}
	w.answer(b)
	return nil
}

// takeOnce inserts the first free key of each group that is open. A key that is there
// is not tried: so nobody waits for one who is just giving it back, and
// those who insert do it in one order. It reports whether a key that is there is
// a dead session's.
func (t *postgresTables) takeOnce(ctx context.Context, s *stamp, w *wishes, drawn *tokens) (stale bool, err error) {
	var chosen, won sql.NullString
	dest := []any{&chosen, &won, &stale}
	query := t.me(s) + `,
	wanted AS (SELECT g, s, k, n FROM ` + w.unnest() + `),
	free AS (SELECT DISTINCT ON (g) g, s, k, n FROM wanted, me
		WHERE NOT EXISTS (SELECT 1 FROM ` + t.schema + `latchkey_locks AS l WHERE l.key_space = s AND l.key_id = k)
		ORDER BY g, n),
	won AS (INSERT INTO ` + t.schema + `latchkey_locks (key_space, key_id, session, acquired)
		SELECT s, k, me.id, pg_catalog.clock_timestamp() FROM (SELECT DISTINCT s, k FROM free) AS f, me ORDER BY s, k
		ON CONFLICT (key_space, key_id) DO NOTHING RETURNING key_space, key_id)`
	columns := `, (SELECT pg_catalog.string_agg(n::text, ',') FROM free),
		(SELECT pg_catalog.string_agg(key_space::text || ':' || key_id::text, ',') FROM won),
		EXISTS (SELECT 1 FROM wanted
			JOIN ` + t.schema + `latchkey_locks AS l ON l.key_space = s AND l.key_id = k
			LEFT JOIN ` + t.schema + `latchkey_sessions AS o ON o.id = l.session
			WHERE o.id IS NULL OR o.expires <= pg_catalog.clock_timestamp())`
	var system, epoch, number, life sql.NullInt64
	if t.logged {
		query += message(`(SELECT pg_catalog.count(*) AS n FROM won) AS w WHERE n > 0`) // after all that was won
		columns += messageColumns
		dest = append(dest, &system, &epoch, &number, &life)
	}
	if err := t.run(ctx, s, query+alive+columns, dest...); err != nil {
		return false, err
	}
	if number.Valid {
		token := Token{System: system.Int64, Epoch: epoch.Int64, Number: number.Int64, Here: postgresHere(life.Int64), Outlives: true}
		drawn.reserve(token, messageSize)
	}
	return stale, w.took(chosen.String, won.String)
}

// message is a part of a statement that writes an empty message to the write-ahead log, if from
// has a row, as tokenQuery does.
func message(from string) string {
	return `,
	message AS MATERIALIZED (SELECT pg_catalog.pg_logical_emit_message(true, 'latchkey', '') AS lsn FROM ` + from + `)`
}

const (
	// messageColumns are where that is: system, timeline, place, and the life of the server.
	messageColumns = `, (SELECT system_identifier FROM message, pg_catalog.pg_control_system()),
		(SELECT ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(lsn), 8))::bit(32)::bigint FROM message), (SELECT (lsn - '0/0')::bigint FROM message), ` + postgresLife

	// messageSize is less than a message takes in the write-ahead log, its header and prefix alone:
	// the places from that of one message on are nobody else's.
	messageSize = 48
)

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
		"DELETE FROM " + t.schema + "latchkey_claims WHERE session NOT IN (SELECT id FROM " + sessions + ")",
	} {
		if err := t.pool.exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (t *postgresTables) held(ctx context.Context, s *stamp) ([]Key, error) {
	// In a statement of its own: one that is still under way has ended after that,
	// and the next one sees what it did.
	if err := t.run(ctx, s, t.me(s)+alive); err != nil {
		return nil, err
	}
	var list sql.NullString
	err := t.pool.row(ctx, "SELECT pg_catalog.string_agg(key_space::text || ':' || key_id::text, ',') FROM "+t.schema+"latchkey_locks WHERE session = "+
		strconv.FormatInt(s.id, 10), &list)
	if err != nil {
		return nil, err
	}
	return parseKeys(list.String)
}

func (t *postgresTables) token(ctx context.Context, s *stamp) (token Token, n int64, err error) {
	var life int64
	dest := nullable([]any{&token.System, &token.Epoch, &token.Number, &life})
	var query string
	if t.logged {
		query, n = t.me(s)+message("me")+alive+messageColumns, messageSize
	} else {
		query, n = t.counterQuery(s), 1
	}
	if err = t.run(ctx, s, query, dest...); err == nil && t.genuine {
		token.Here, token.Outlives = postgresHere(life), true
	}
	return token, n, err
}

// counterQuery draws from a counter that is never behind the clock, in
// microseconds. If a failover loses the last tokens, the next ones are greater all
// the same.
func (t *postgresTables) counterQuery(s *stamp) string {
	life := "0"
	if t.genuine {
		life = postgresLife
	}
	counter := t.schema + "latchkey_tokens"
	return t.me(s) + `,
	counted AS (INSERT INTO ` + counter + ` AS c (only_row, system, number)
		SELECT 1, ` + postgresTypes.random + `, (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000.0)::bigint FROM me
		ON CONFLICT (only_row) DO UPDATE SET number = greatest(c.number + 1, excluded.number) RETURNING system, number)` +
		alive + `, (SELECT system FROM counted), 0, (SELECT number FROM counted), ` + life
}

// end deletes a session's rows. What a statement that is still under way adds to them counts for nothing
// without the session, and goes with the next reap.
func (t *postgresTables) end(ctx context.Context, s *stamp) error {
	id := strconv.FormatInt(s.id, 10)
	return t.pool.exec(ctx, "WITH session AS (DELETE FROM "+t.schema+"latchkey_sessions WHERE id = "+id+" RETURNING id),"+
		" locks AS (DELETE FROM "+t.schema+"latchkey_locks WHERE session = "+id+" RETURNING session),"+
		" claims AS (DELETE FROM "+t.schema+"latchkey_claims WHERE session = "+id+" RETURNING session)"+
		" SELECT (SELECT pg_catalog.count(*) FROM session), (SELECT pg_catalog.count(*) FROM locks), (SELECT pg_catalog.count(*) FROM claims)")
}

// nullable is where numbers go that are NULL if the session has expired.
func nullable(numbers []any) []any {
	for i, n := range numbers {
		numbers[i] = &orNull{n.(*int64)}
	}
	return numbers
}

type orNull struct{ n *int64 }

func (o *orNull) Scan(value any) error {
	var v sql.NullInt64
	err := v.Scan(value)
	*o.n = v.Int64
	return err
}
