package dialect

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
)

// A Registrar is a Session that can write down, for people, what it holds and what callers of its
// process wait for.
type Registrar interface {
	// Register writes r into tables, in place of what it wrote before, in one round trip. An error
	// is of Exchange's kinds; whatever it is, what a session that lives holds
	// is as before, and nothing was written.
	Register(tables Registry, r *Register) error
}

// A Register is what a session writes down.
type Register struct {
	Process int64
	Holder  string
	Lease   time.Duration
	Held    []HeldKey
	Waits   []WaitingKey
	IsFirst bool // what this session writes: it then removes what dead ones have left
	NoWaits bool // another session of the process writes those
}

// A HeldKey is a lock that is held.
type HeldKey struct {
	Key             Key
	Namespace, Name string // "" for none
	Age             time.Duration
}

// A WaitingKey is callers of one kind that wait for a key by asking again and again.
type WaitingKey struct {
	Key     Key
	Holding Key // what each of them holds itself, if Holds
	Holds   bool
	Waiters int
	Age     time.Duration // of the longest wait
}

// FindRegistry finds the registry's tables, in schema, or, if that is empty, where the search_path
// of db's connections finds them. The error is a *Failure or ctx's.
func FindRegistry(ctx context.Context, db *sql.DB, schema string) (Registry, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return Registry{}, Fail(err)
	}
	defer conn.Close()
	if err := tidy(ctx, conn); err != nil {
		return Registry{}, Fail(err)
	}
	r, err := findRegistry(ctx, conn, schema)
	if err == nil {
		r.UTF8, err = holds(ctx, conn, "pg_catalog.current_setting('server_encoding') = 'UTF8'")
	}
	switch {
	case err != nil:
		return r, Fail(err)
	case r.Heartbeats.Untrusted || r.Waits.Untrusted:
		return r, &Failure{Kind: Statement, State: undefinedTable,
			Reason: "the tables latchkey_heartbeats or latchkey_waits in the search_path belong to somebody else than this role, the database's owner or a superuser: name their schema if you trust their owner"}
	case r.Heartbeats.Name != "" && r.Waits.Name != "":
		return r, nil
	case schema == "":
		return r, &Failure{Kind: Statement, State: undefinedTable,
			Reason: "there are no tables latchkey_heartbeats and latchkey_waits in the search_path: create them with lockwatch.Schema, or name their schema"}
	}
	return r, &Failure{Kind: Statement, State: undefinedTable,
		Reason: "there are no tables latchkey_heartbeats and latchkey_waits in the schema that was named: create them there with lockwatch.Schema"}
}

// Register is an Exec without arguments: several statements in one transaction and one round trip. It
// waits for nobody's locks for long, nor for the disk or a standby, and each statement of it, a trigger's
// work included, is given up before callers of locks would get no answer.
func (s *postgresSession) Register(tables Registry, r *Register) error {
	n, err := unlessClosed(func() (int64, error) { return rows(s.statements.ctx, s.conn, tables.register(s.pid, r)) })
	if err == nil && n != 1 {
		err = errOtherProcess
	}
	return Fail(err)
}

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
			r.Heartbeats.Name, what.Process, me, r.text(what.Holder), interval(what.Lease), what.heldRows(r)))
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
			r.Waits.Name, what.Process, interval(what.Lease), what.waitRows()))
	}
	if what.IsFirst {
		statements = append(statements, r.sweepDead(r.Heartbeats, notHeld), r.sweepDead(r.Waits, "true"))
	}
	statements = append(statements, fmt.Sprintf("SELECT 1 WHERE pg_catalog.pg_backend_pid() = %d", pid))
	return strings.Join(statements, ";\n")
}

// What a session removes when it comes is what has been dead for long, and little of it.
const (
	deadFor   = 10 * time.Minute
	deadLimit = 1000
)

func (Registry) sweepDead(table RegistryTable, dead string) string {
	return fmt.Sprintf(sweepStatement, table.Name, interval(deadFor), dead, deadLimit)
}

// notAmong is the condition that a row's columns are none of keys.
func notAmong(columns string, keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return " AND (" + columns + ") NOT IN (VALUES " + strings.Join(keys, ",") + ")"
}

func (r *Register) heldKeys() (all []string) {
	for _, h := range r.Held {
		all = append(all, fmt.Sprintf("(%d, (%d)::bigint)", h.Key.Exclusive().Space, h.Key.ID))
	}
	return all
}

func (r *Register) heldRows(tables Registry) string {
	var all []string
	for _, h := range r.Held {
		name := "NULL::text"
		if h.Name != "" {
			name = tables.text(h.Name)
		}
		all = append(all, fmt.Sprintf("(%d, (%d)::bigint, %s, %s, %s, %t)", h.Key.Exclusive().Space, h.Key.ID, tables.text(h.Namespace), name, interval(h.Age), h.Key.IsShared()))
	}
	return strings.Join(all, ",")
}

// holding is the columns of what w's callers hold.
func (w WaitingKey) holding() string {
	if !w.Holds {
		return "-1, 0::bigint"
	}
	return fmt.Sprintf("%d, (%d)::bigint", w.Holding.Exclusive().Space, w.Holding.ID)
}

func (r *Register) waitKeys() (all []string) {
	for _, w := range r.Waits {
		all = append(all, fmt.Sprintf("(%d, (%d)::bigint, %s)", w.Key.Exclusive().Space, w.Key.ID, w.holding()))
	}
	return all
}

func (r *Register) waitRows() string {
	var all []string
	for _, w := range r.Waits {
		all = append(all, fmt.Sprintf("(%d, (%d)::bigint, %s, %d, %s)", w.Key.Exclusive().Space, w.Key.ID, w.holding(), w.Waiters, interval(w.Age)))
	}
	return strings.Join(all, ",")
}

// longestText is how many bytes of a text for people are written.
const longestText = 200

// text is an expression for what the database can store of s, cut where it is long: everything
// in UTF-8, else what is ASCII of it. Its bytes travel as hex digits, which are the same in every encoding of a
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
