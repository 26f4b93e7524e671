package postgres

import "github.com/latchkey-go/latchkey/internal/dialect"

// The tables of the registry: a row for each lock, and a row for each key that
// callers wait for.
const (
	heartbeatsTable = `CREATE TABLE IF NOT EXISTS latchkey_heartbeats ( -- a row for each lock held by a Session that writes heartbeats
	process       bigint      NOT NULL, -- the Session's random number
	pid           int         NOT NULL, -- of the server process that holds the lock
	backend_start timestamptz NOT NULL, -- of that process, as in pg_stat_activity: a pid comes again
	key_space     smallint    NOT NULL CHECK (key_space IN (0, 1)), -- 0: bigint, 1: two integers
	key_id        bigint      NOT NULL, -- two integers: the first in the high 32 bits
	namespace     text        NOT NULL, -- empty: none
	name          text,                 -- only if allowed: it may be personal data
	holder        text        NOT NULL, -- for people: host and process
	acquired      timestamptz NOT NULL, -- no later than the first heartbeat with the lock
	expires       timestamptz NOT NULL, -- heartbeat + lease
	heartbeat     timestamptz NOT NULL, -- the last one, by the database's clock
	shared        boolean     NOT NULL DEFAULT false,
	PRIMARY KEY (pid, backend_start, key_space, key_id)
) WITH (fillfactor = 70)`

	waitsTable = `CREATE TABLE IF NOT EXISTS latchkey_waits ( -- a row for each key that callers of such a Session poll for
	process    bigint      NOT NULL, -- the Session's random number
	key_space  smallint    NOT NULL CHECK (key_space IN (0, 1)),
	key_id     bigint      NOT NULL,
	held_space smallint    NOT NULL CHECK (held_space IN (-1, 0, 1)), -- of a lock that the waiting caller holds, or -1 if none is known or it waits for any of several keys
	held_id    bigint      NOT NULL,
	waiters    int         NOT NULL, -- callers
	since      timestamptz NOT NULL, -- the longest wait
	heartbeat  timestamptz NOT NULL,
	expires    timestamptz NOT NULL, -- heartbeat + lease: shows that the process died
	PRIMARY KEY (process, key_space, key_id, held_space, held_id)
) WITH (fillfactor = 70)`
)

// RegistrySchema returns the statements that create the tables of the registry.
// Only PostgreSQL has one.
func RegistrySchema() dialect.Schema {
	return dialect.Schema{PostgreSQL: []string{heartbeatsTable, waitsTable}}
}
