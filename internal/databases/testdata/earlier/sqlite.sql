CREATE TABLE IF NOT EXISTS latchkey_sessions (
	id        INTEGER NOT NULL PRIMARY KEY,
	expires   INTEGER NOT NULL, -- by the database's clock
	statement INTEGER NOT NULL, -- the last one's number
	holder    TEXT NOT NULL  -- for people: host/process
);
CREATE TABLE IF NOT EXISTS latchkey_locks (
	key_space INTEGER NOT NULL,
	key_id    INTEGER NOT NULL,
	session   INTEGER NOT NULL,
	acquired  INTEGER NOT NULL,
	PRIMARY KEY (key_space, key_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS latchkey_secret_checks (
	class   INTEGER NOT NULL, -- of a namespace
	fingerprint INTEGER NOT NULL, -- of the secret that its keys are made with
	session INTEGER NOT NULL,
	PRIMARY KEY (class, fingerprint, session)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS latchkey_tokens (
	only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
	system   INTEGER NOT NULL,
	number   INTEGER NOT NULL
);
INSERT INTO latchkey_tokens (only_row, system, number) VALUES (1, abs(random() / 1024), 0) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS latchkey_fence (
	key_space INTEGER NOT NULL,
	key_id    INTEGER NOT NULL,
	system    INTEGER NOT NULL, -- of latchkey_tokens
	timeline  INTEGER NOT NULL,
	lsn       INTEGER NOT NULL,
	fenced_at TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
	stale     INTEGER NOT NULL DEFAULT 0 CONSTRAINT latchkey_fence_stale CHECK (NOT stale),
	PRIMARY KEY (key_space, key_id)
);
CREATE TABLE IF NOT EXISTS latchkey_watermarks (
	key_space INTEGER NOT NULL,
	key_id    INTEGER NOT NULL,
	mark      INTEGER NOT NULL,
	marked_at TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
	PRIMARY KEY (key_space, key_id)
);
CREATE TABLE IF NOT EXISTS latchkey_responses (
	key         BLOB NOT NULL PRIMARY KEY, -- SHA-256 of namespace, principal, route and key
	fingerprint BLOB NOT NULL,             -- SHA-256 of what must be the same in a retry
	status      INTEGER,                   -- null while the handler runs, which no other transaction sees
	header      BLOB,
	body        BLOB,
	created_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) -- UTC
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS latchkey_responses_created_at ON latchkey_responses (created_at);
