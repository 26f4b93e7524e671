CREATE TABLE IF NOT EXISTS latchkey_sessions (
	id        bigint NOT NULL PRIMARY KEY,
	expires   timestamptz NOT NULL, -- by the database's clock
	statement bigint NOT NULL, -- the last one's number
	holder    text NOT NULL  -- for people: host/process
);
CREATE TABLE IF NOT EXISTS latchkey_locks (
	key_space smallint NOT NULL,
	key_id    bigint NOT NULL,
	session   bigint NOT NULL,
	acquired  timestamptz NOT NULL,
	PRIMARY KEY (key_space, key_id)
);
CREATE TABLE IF NOT EXISTS latchkey_secret_checks (
	class   bigint NOT NULL, -- of a namespace
	fingerprint bigint NOT NULL, -- of the secret that its keys are made with
	session bigint NOT NULL,
	PRIMARY KEY (class, fingerprint, session)
);
CREATE TABLE IF NOT EXISTS latchkey_tokens (
	only_row smallint NOT NULL PRIMARY KEY CHECK (only_row = 1),
	system   bigint NOT NULL,
	number   bigint NOT NULL
);
INSERT INTO latchkey_tokens (only_row, system, number) VALUES (1, (pg_catalog.random() * 9007199254740991::double precision)::bigint, 0) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS latchkey_fence (
	key_space smallint NOT NULL,
	key_id    bigint   NOT NULL,
	system    bigint   NOT NULL, -- pg_catalog.pg_control_system()
	timeline  bigint   NOT NULL,
	lsn       bigint   NOT NULL,
	fenced_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
	stale     boolean  NOT NULL DEFAULT false CONSTRAINT latchkey_fence_stale CHECK (NOT stale),
	PRIMARY KEY (key_space, key_id)
) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS latchkey_watermarks (
	key_space smallint NOT NULL,
	key_id    bigint   NOT NULL,
	mark      bigint   NOT NULL,
	marked_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
	PRIMARY KEY (key_space, key_id)
) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS latchkey_heartbeats ( -- a row for each lock held by a Session that writes heartbeats
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
) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS latchkey_waits ( -- a row for each key that callers of such a Session poll for
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
) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS latchkey_responses (
	key         bytea       PRIMARY KEY, -- SHA-256 of namespace, principal, route and key
	fingerprint bytea       NOT NULL,    -- SHA-256 of what must be the same in a retry
	status      integer,                 -- null while the handler runs, which no other transaction sees
	header      bytea,
	body        bytea,
	created_at  timestamptz NOT NULL DEFAULT pg_catalog.now()
);
CREATE INDEX IF NOT EXISTS latchkey_responses_created_at ON latchkey_responses (created_at);
