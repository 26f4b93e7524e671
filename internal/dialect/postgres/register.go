package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A Registrar is a Session that can write down for people which keys it holds
// and which keys callers of its process wait for.
type Registrar interface {
	// Register writes r into tables, in place of what it wrote before, in one
	// round trip. Its error is like that of Exchange. After an error it has
	// written nothing, and a session that lives holds the same locks as before.
	Register(tables Registry, r *Register) error
}

// A Register is what a session writes down.
type Register struct {
	Process int64
	Holder  string
	Lease   time.Duration
	Held    []HeldKey
	Waits   []WaitingKey
	IsFirst bool // the first one of this session: it removes rows of dead sessions
	NoWaits bool // another session of the process writes Waits
}

// A HeldKey is a lock that is held. One with the number of the Register's Process
// is no lock: it shows on which server process a Session waits. Readers of locks
// pass over it, since no process holds it.
type HeldKey struct {
	Key             dialect.Key
	Namespace, Name string // "" for none
	Age             time.Duration
}

// A WaitingKey is a key that callers of this process poll for. All of them hold
// the same other lock, or none is known.
type WaitingKey struct {
	Key     dialect.Key
	Holding dialect.Key // what each caller holds, if Holds
	Holds   bool
	Waiters int
	Age     time.Duration // of the longest wait
}

// FindRegistry finds the registry's tables. With an empty schema it looks for
// them in the search_path of db's connections. The error is a *Failure or that
// of ctx.
func FindRegistry(ctx context.Context, db *sql.DB, schema string) (Registry, error) {
	r, err := onPool(ctx, db, func(conn *sql.Conn) (Registry, error) {
		r, err := findRegistry(ctx, conn, schema)
		if err == nil {
			r.UTF8, err = Holds(ctx, conn, "pg_catalog.current_setting('server_encoding') = 'UTF8'")
		}
		return r, err
	})
	switch {
	case err != nil:
		return r, err
	case r.Heartbeats.Untrusted || r.Waits.Untrusted:
		return r, &dialect.Failure{Kind: dialect.Statement, State: errcode.UndefinedTable,
			Reason: "the tables latchkey_heartbeats or latchkey_waits in the search_path belong to somebody else than this role, the database's owner or a superuser: name their schema if you trust their owner"}
	case r.Heartbeats.Name != "" && r.Waits.Name != "":
		return r, nil
	case schema == "":
		return r, &dialect.Failure{Kind: dialect.Statement, State: errcode.UndefinedTable,
			Reason: "there are no tables latchkey_heartbeats and latchkey_waits in the search_path: create them with lockwatch.Schema, or name their schema"}
	}
	return r, &dialect.Failure{Kind: dialect.Statement, State: errcode.UndefinedTable,
		Reason: "there are no tables latchkey_heartbeats and latchkey_waits in the schema that was named: create them there with lockwatch.Schema"}
}

// Register implements Registrar with an Exec without arguments. That is several
// statements in one transaction and one round trip.
//
// It waits at most 100 ms for a lock, and not for the disk or a standby. Each
// statement ends after 300 ms, with the triggers that it runs, so that callers
// who want locks still get a response.
func (s *session) Register(tables Registry, r *Register) error {
	n, err := dbconn.UnlessClosed(func() (int64, error) { return rows(s.statements.ctx, s.conn, tables.register(s.pid, r)) })
	switch {
	case err == nil && n != 1:
		err = errOtherProcess
	case errcode.SQLState(err) == notNullViolation:
		err = errStartHidden
	}
	return dialect.Fail(err)
}

const notNullViolation = "23502"

// errStartHidden is the failure of a record without the start of the process,
// which the server hides after a SET ROLE.
var errStartHidden = &dialect.Failure{
	Kind:   dialect.Statement,
	State:  notNullViolation,
	Reason: "the role that SET ROLE has set may not see its own session: grant it the role that logs in, or pg_read_all_stats",
}

// register returns the statements of Register for the server process pid.
func (r Registry) register(pid int64, what *Register) string {
	const me = "(SELECT backend_start FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()))"
	statements := []string{
		"SELECT pg_catalog.set_config('lock_timeout', '100ms', true), pg_catalog.set_config('statement_timeout', '300ms', true), pg_catalog.set_config('synchronous_commit', 'off', true)",
		"DELETE FROM " + r.Heartbeats.Name + " WHERE pid = pg_catalog.pg_backend_pid() AND backend_start = " + me + notAmong("key_space, key_id", what.heldKeys()),
	}
	if len(what.Held) > 0 {
		statements = append(statements, fmt.Sprintf(`INSERT INTO %s AS h (process, pid, backend_start, key_space, key_id, namespace, name, holder, acquired, expires, heartbeat, shared)
			SELECT %d, pg_catalog.pg_backend_pid(), %s, s, k, namespace, name, %s, pg_catalog.statement_timestamp() - age, pg_catalog.statement_timestamp() + %s, pg_catalog.statement_timestamp(), shared
			FROM (VALUES %s) AS v (s, k, namespace, name, age, shared)
			ON CONFLICT (pid, backend_start, key_space, key_id) DO UPDATE SET process = excluded.process, namespace = excluded.namespace, name = excluded.name,
			acquired = excluded.acquired, expires = excluded.expires, heartbeat = excluded.heartbeat, shared = excluded.shared`,
			r.Heartbeats.Name, what.Process, me, r.text(what.Holder), Interval(what.Lease), what.heldRows(r)))
	}
	if !what.NoWaits {
		statements = append(statements, "DELETE FROM "+r.Waits.Name+" WHERE process = "+strconv.FormatInt(what.Process, 10)+
			notAmong("key_space, key_id, held_space, held_id", what.waitKeys()))
	}
	if !what.NoWaits && len(what.Waits) > 0 {
		statements = append(statements, fmt.Sprintf(`INSERT INTO %s AS w (process, key_space, key_id, held_space, held_id, waiters, since, heartbeat, expires)
			SELECT %d, s, k, hs, hk, waiters, pg_catalog.statement_timestamp() - age, pg_catalog.statement_timestamp(), pg_catalog.statement_timestamp() + %s
			FROM (VALUES %s) AS v (s, k, hs, hk, waiters, age)
			ON CONFLICT (process, key_space, key_id, held_space, held_id) DO UPDATE SET waiters = excluded.waiters, since = excluded.since,
			heartbeat = excluded.heartbeat, expires = excluded.expires`,
			r.Waits.Name, what.Process, Interval(what.Lease), what.waitRows()))
	}
	if what.IsFirst {
		statements = append(statements, r.sweepDead(r.Heartbeats, notHeld), r.sweepDead(r.Waits, "true"))
	}
	statements = append(statements, fmt.Sprintf("SELECT 1 WHERE pg_catalog.pg_backend_pid() = %d", pid))
	return strings.Join(statements, ";\n")
}

// The first Register of a session removes rows that expired long ago, and few
// of them.
const (
	deadFor   = 10 * time.Minute
	deadLimit = 1000
)

// sweepDead returns the statement that removes rows of dead sessions from a
// table.
func (Registry) sweepDead(table RegistryTable, dead string) string {
	return fmt.Sprintf(sweepStatement, table.Name, Interval(deadFor), dead, deadLimit)
}

// notAmong is the condition that columns are none of keys.
func notAmong(columns string, keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return " AND (" + columns + ") NOT IN (VALUES " + strings.Join(keys, ",") + ")"
}

// heldKeys returns the keys of Held as rows of SQL.
func (r *Register) heldKeys() (all []string) {
	for _, h := range r.Held {
		all = append(all, fmt.Sprintf("(%d, (%d)::bigint)", h.Key.Exclusive().Space, h.Key.ID))
	}
	return all
}

// heldRows returns Held as rows of SQL.
func (r *Register) heldRows(tables Registry) string {
	var all []string
	for _, h := range r.Held {
		name := "NULL::text"
		if h.Name != "" {
			name = tables.text(h.Name)
		}
		all = append(all, fmt.Sprintf("(%d, (%d)::bigint, %s, %s, %s, %t)", h.Key.Exclusive().Space, h.Key.ID, tables.text(h.Namespace), name, Interval(h.Age), h.Key.IsShared()))
	}
	return strings.Join(all, ",")
}

// holding returns the columns for the lock that the callers of w hold.
func (w WaitingKey) holding() string {
	if !w.Holds {
		return "-1, 0::bigint"
	}
	return fmt.Sprintf("%d, (%d)::bigint", w.Holding.Exclusive().Space, w.Holding.ID)
}

// waitKeys returns the keys of Waits as rows of SQL.
func (r *Register) waitKeys() (all []string) {
	for _, w := range r.Waits {
		all = append(all, fmt.Sprintf("(%d, (%d)::bigint, %s)", w.Key.Exclusive().Space, w.Key.ID, w.holding()))
	}
	return all
}

// waitRows returns Waits as rows of SQL.
func (r *Register) waitRows() string {
	var all []string
	for _, w := range r.Waits {
		all = append(all, fmt.Sprintf("(%d, (%d)::bigint, %s, %d, %s)", w.Key.Exclusive().Space, w.Key.ID, w.holding(), w.Waiters, Interval(w.Age)))
	}
	return strings.Join(all, ",")
}

// longestText bounds a text for people, in bytes.
const longestText = 200

// text returns an SQL expression for s, cut if it is long. In a database that
// is not UTF-8 only the ASCII characters remain.
//
// The bytes travel as hex digits, which are the same in every encoding of a
// client and need no quotes.
func (r Registry) text(s string) string {
	const unknown = '?'
	s = strings.Map(func(c rune) rune {
		if c == 0 || c > unicode.MaxASCII && !r.UTF8 {
			return unknown
		}
		return c
	}, strings.ToValidUTF8(s, string(unknown)))
	if len(s) > longestText {
		cut := longestText
		for !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut]
	}
	return "pg_catalog.convert_from(pg_catalog.decode('" + hex.EncodeToString([]byte(s)) + "', 'hex'), 'UTF8')"
}
