CREATE TABLE IF NOT EXISTS latchkey_secret_checks (
	class   INT NOT NULL, -- of a namespace
	fingerprint INT NOT NULL, -- of the secret that its keys are made with
	session VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- a lock that is held while it lives
	PRIMARY KEY (class, fingerprint, session)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS latchkey_tokens (
	only_row    TINYINT NOT NULL PRIMARY KEY CHECK (only_row = 1),
	system_id   BIGINT NOT NULL,
	server_hash BIGINT NOT NULL, -- of the server of the last one
	epoch       BIGINT NOT NULL, -- rises when that changes
	number      BIGINT NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO latchkey_tokens (only_row, system_id, server_hash, epoch, number) VALUES (1, FLOOR(RAND() * 9007199254740991), 0, 0, 0);
CREATE TABLE IF NOT EXISTS latchkey_fence (
	key_space SMALLINT NOT NULL,
	key_id    BIGINT NOT NULL,
	system_id BIGINT NOT NULL, -- of latchkey_tokens
	timeline  BIGINT NOT NULL, -- its epoch
	lsn       BIGINT NOT NULL, -- its number
	fenced_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
	stale     BOOLEAN NOT NULL DEFAULT FALSE,
	PRIMARY KEY (key_space, key_id),
	CONSTRAINT latchkey_fence_stale CHECK (NOT stale)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS latchkey_watermarks (
	key_space SMALLINT NOT NULL,
	key_id    BIGINT NOT NULL,
	mark      BIGINT NOT NULL,
	marked_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
	PRIMARY KEY (key_space, key_id)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS latchkey_responses (
	`key`       BINARY(32)   NOT NULL PRIMARY KEY, -- SHA-256 of namespace, principal, route and key
	fingerprint BINARY(32)   NOT NULL,             -- SHA-256 of what must be the same in a retry
	status      INTEGER,                           -- null while the handler runs, which no other transaction sees
	header      MEDIUMBLOB,
	body        LONGBLOB,
	created_at  TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
	KEY latchkey_responses_created_at (created_at)
) ENGINE = InnoDB;
