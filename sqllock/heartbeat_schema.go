package sqllock

// HeartbeatSchema makes the registry of holders, for people: run it once, or take it into your
// migrations. [Inspect] and [Watch] read it where it is there; both work without.
// A Session that is told to writes it, with each heartbeat: a lock that is held for less
// than a heartbeat never shows in it.
//
// Who reads it needs SELECT; Watch, which removes what dead processes leave, DELETE and UPDATE
// too. The name may be personal data: give SELECT to those who may see it. Let the role that reads, the
// database's owner or a superuser create the tables: others' are used only if their schema is named. They
// may not be views, foreign tables or partitioned.
const HeartbeatSchema = `CREATE TABLE IF NOT EXISTS lock_heartbeats ( -- a row for each lock held by a Session that writes heartbeats
	process       bigint      NOT NULL, -- the Session's random number
	pid           int         NOT NULL, -- of the server process that holds the lock
	backend_start timestamptz NOT NULL, -- of that process, as in pg_stat_activity: a pid comes again
	key_space     smallint    NOT NULL CHECK (key_space IN (0, 1)), -- 0: bigint, 1: two integers
	key_id        bigint      NOT NULL, -- two integers: the first in the high 32 bits
	namespace     text        NOT NULL, -- empty: none
	name          text,                 -- only if allowed: it may be personal data
	holder        text        NOT NULL, -- for people: host and process
	acquired      timestamptz NOT NULL, -- no later than the heartbeat that first told of the lock
	expires       timestamptz NOT NULL, -- heartbeat + lease
	heartbeat     timestamptz NOT NULL, -- the last one, by the database's clock
	shared        boolean     NOT NULL DEFAULT false,
	PRIMARY KEY (pid, backend_start, key_space, key_id)
) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS lock_waits ( -- a row for each key that callers of such a Session wait for by asking again and again
	process    bigint      NOT NULL, -- the Session's random number
	key_space  smallint    NOT NULL CHECK (key_space IN (0, 1)),
	key_id     bigint      NOT NULL,
	held_space smallint    NOT NULL CHECK (held_space IN (-1, 0, 1)), -- a lock that the waiting caller holds; -1: none is known, or it waits for any of several keys
	held_id    bigint      NOT NULL,
	waiters    int         NOT NULL, -- callers
	since      timestamptz NOT NULL, -- the longest wait
	heartbeat  timestamptz NOT NULL,
	expires    timestamptz NOT NULL, -- heartbeat + lease: of who died it is all that tells
	PRIMARY KEY (process, key_space, key_id, held_space, held_id)
) WITH (fillfactor = 70);
`
