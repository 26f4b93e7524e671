package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/internal/bound"
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

// A Register is what a session writes down. It travels as JSON.
type Register struct {
	Process int64
	Holder  string
	Lease   time.Duration
	Held    []HeldKey    `json:",omitempty"`
	Waits   []WaitingKey `json:",omitempty"`
	IsFirst bool         // the first one of this session: it removes rows of dead sessions
	NoWaits bool         // another session of the process writes Waits
}

// A HeldKey is a lock that is held. One with the number of the Register's Process
// is no lock: it shows on which server process a Session waits. Readers of locks
// pass over it, since no process holds it.
type HeldKey struct {
	dialect.Key
	Namespace, Name string // "" for none
	Age             time.Duration
}

// A WaitingKey is a key that callers of this process poll for. All of them hold
// the same other lock, or none is known.
type WaitingKey struct {
	dialect.Key
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
		r, err := FindTables(ctx, conn, schema)
		if err == nil {
			r.UTF8, err = Holds(ctx, conn, "pg_catalog.current_setting('server_encoding') = 'UTF8'")
		}
		if err == nil {
			err = dialect.CheckTables(ctx, conn, "postgres", schema, RegistrySchema().PostgreSQL, "lockwatch.Schema")
		}
		return r, err
	})
	reason := "there are no tables latchkey_heartbeats and latchkey_waits in the schema that was named: create them there with lockwatch.Schema"
	switch {
	case err != nil:
		return r, err
	case r.Heartbeats.State == untrusted || r.Waits.State == untrusted:
		reason = "the tables latchkey_heartbeats or latchkey_waits in the search_path belong to somebody else than this role, the database's owner or a superuser: name their schema if you trust their owner"
	case r.Heartbeats.Name != "" && r.Waits.Name != "":
		return r, nil
	case schema == "":
		reason = "there are no tables latchkey_heartbeats and latchkey_waits in the search_path: create them with lockwatch.Schema, or name their schema"
	}
	return r, &dialect.Failure{Kind: dialect.Statement, State: errcode.UndefinedTable, Reason: reason}
}

// Register implements Registrar with an Exec without arguments. That is several
// statements in one transaction and one round trip.
//
// It waits at most 100 ms for a lock, and not for the disk or a standby. Each
// statement ends after 300 ms, with the triggers that it runs, so that callers
// who want locks still get a response.
func (s *session) Register(tables Registry, r *Register) error {
	n, err := dbconn.UnlessClosed(func() (int64, error) { return rows(s.ctx, s.conn, tables.register(s.pid, r)) })
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
	limit, sweeps := 300*time.Millisecond, ""
	if what.IsFirst {
		limit = bound.Of(limit) // Open may fail with its error
		sweeps = r.Heartbeats.sweep(deadFor, notHeld, deadLimit) + ";\n" + r.Waits.sweep(deadFor, "true", deadLimit) + ";\n"
	}
	return fmt.Sprintf("SELECT set_config('lock_timeout', '100ms', true), set_config('statement_timeout', '%dms', true), set_config('synchronous_commit', 'off', true);\n",
		limit.Milliseconds()) + sweeps + strings.NewReplacer("HEARTBEATS", r.Heartbeats.Name, "WAITS", r.Waits.Name,
		"DOCUMENT", r.document(what), "PID", strconv.FormatInt(pid, 10)).Replace(registerStatement)
}

// registerStatement replaces what a session has written by a new Register. It
// selects one row if the process PID carries it out. Durations in the document
// are in nanoseconds.
const registerStatement = `WITH what AS MATERIALIZED (
	SELECT d, (d->>'Process')::bigint AS process, d->>'Holder' AS holder, statement_timestamp() AS now,
		statement_timestamp() + (d->>'Lease')::bigint / 1000 * interval '1 microsecond' AS expires,
		pg_backend_pid() AS pid, (SELECT backend_start FROM pg_stat_get_activity(pg_backend_pid())) AS start
	FROM (SELECT DOCUMENT::json AS d) AS document),
held AS MATERIALIZED (
	SELECT process, pid, start, "Space" & 1 AS s, "ID" AS k, "Namespace", nullif("Name", ''), holder,
		now - "Age" / 1000 * interval '1 microsecond', expires, now AS heartbeat, ("Space" & 2) <> 0
	FROM what, json_to_recordset(d->'Held') AS h ("Space" int, "ID" bigint, "Namespace" text, "Name" text, "Age" bigint)),
waiting AS MATERIALIZED (
	SELECT process, "Space" & 1 AS s, "ID" AS k, CASE WHEN "Holds" THEN ("Holding"->>'Space')::int & 1 ELSE -1 END AS hs, ("Holding"->>'ID')::bigint AS hk, "Waiters",
		now - "Age" / 1000 * interval '1 microsecond', now AS heartbeat, expires
	FROM what, json_to_recordset(d->'Waits') AS w ("Space" int, "ID" bigint, "Holds" boolean, "Holding" json, "Waiters" int, "Age" bigint)),
ended AS (
	DELETE FROM HEARTBEATS AS t USING what WHERE (t.pid, t.backend_start) = (what.pid, start) AND (key_space, key_id) NOT IN (SELECT s, k FROM held)),
served AS (
	DELETE FROM WAITS AS t USING what WHERE t.process = what.process AND NOT (d->>'NoWaits')::boolean
		AND (key_space, key_id, held_space, held_id) NOT IN (SELECT s, k, hs, hk FROM waiting)),
holds AS (
	INSERT INTO HEARTBEATS (process, pid, backend_start, key_space, key_id, namespace, name, holder, acquired, expires, heartbeat, shared) SELECT * FROM held
	ON CONFLICT (pid, backend_start, key_space, key_id) DO UPDATE SET process = excluded.process, namespace = excluded.namespace, name = excluded.name,
		acquired = excluded.acquired, expires = excluded.expires, heartbeat = excluded.heartbeat, shared = excluded.shared),
waits AS (
	INSERT INTO WAITS (process, key_space, key_id, held_space, held_id, waiters, since, heartbeat, expires) SELECT * FROM waiting
	ON CONFLICT (process, key_space, key_id, held_space, held_id) DO UPDATE SET waiters = excluded.waiters, since = excluded.since,
		heartbeat = excluded.heartbeat, expires = excluded.expires)
SELECT FROM what WHERE pid = PID`

// The first Register of a session removes rows that expired long ago, and few
// of them.
const (
	deadFor   = 10 * time.Minute
	deadLimit = 1000
)

// longestText bounds a text for people, in bytes.
const longestText = 200

// document returns an SQL expression for r as JSON. Its bytes travel as hex
// digits, which are the same in every encoding of a client and need no quotes.
func (tables Registry) document(r *Register) string {
	written := *r
	written.Holder, written.Held = tables.text(r.Holder), slices.Clone(r.Held)
	for i := range written.Held {
		h := &written.Held[i]
		h.Namespace, h.Name = tables.text(h.Namespace), tables.text(h.Name)
	}
	text, err := json.Marshal(written)
	if err != nil {
		panic("sqllock: " + err.Error()) // numbers and valid UTF-8
	}
	return "convert_from(decode('" + hex.EncodeToString(text) + "', 'hex'), 'UTF8')"
}

// text returns s, cut if it is long. In a database that is not UTF-8 only the
// ASCII characters remain.
func (tables Registry) text(s string) string {
	const unknown = '?'
	s = strings.Map(func(c rune) rune {
		if c == 0 || c > unicode.MaxASCII && !tables.UTF8 {
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
	return s
}

// holdAges reads rows of other processes that are alive. Several rows of a key
// are those of readers, or one is left from a holder before: the latest counts.
//
// The start of a process is hidden from some roles. The pid alone counts then.
const holdAges = `SELECT coalesce(pg_catalog.json_agg(ages), '[]')::text FROM (
	SELECT h.key_space AS "Space", h.key_id AS "ID", (EXTRACT(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.max(h.acquired)) * 1000000000)::bigint AS "Age"
	FROM TABLE AS h JOIN pg_catalog.json_to_recordset(($1)::text::json) AS k ("Space" smallint, "ID" bigint) ON (h.key_space, h.key_id) = (k."Space", k."ID")
	WHERE h.process <> ($2)::bigint AND h.expires > pg_catalog.clock_timestamp()
	AND EXISTS (SELECT FROM pg_catalog.pg_stat_get_activity(h.pid) AS a WHERE a.backend_start IS NULL OR a.backend_start = h.backend_start)
	GROUP BY 1, 2) AS ages`

// HoldAges returns for how long processes other than this one have held keys,
// as far as the registry has them. It borrows a connection of db for one
// statement, and does not wait for one if all are in use. The error is a
// *Failure or that of ctx.
func HoldAges(ctx context.Context, db *sql.DB, tables Registry, process int64, keys []dialect.Key) (map[dialect.Key]time.Duration, error) {
	if stats := db.Stats(); stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections {
		return nil, dbconn.ErrNoConnection
	}
	return onPool(ctx, db, func(conn *sql.Conn) (map[dialect.Key]time.Duration, error) {
		asked, err := json.Marshal(keys)
		if err != nil {
			return nil, err
		}
		var text string
		query := strings.Replace(holdAges, "TABLE", tables.Heartbeats.Name, 1)
		if err := conn.QueryRowContext(ctx, query, string(asked), process).Scan(&text); err != nil {
			return nil, err
		}
		var held []HeldKey
		err = json.Unmarshal([]byte(text), &held)
		ages := make(map[dialect.Key]time.Duration)
		for _, h := range held {
			ages[h.Key] = max(h.Age, 0)
		}
		return ages, err
	})
}
