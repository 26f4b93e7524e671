package usertx

import (
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// schemaOf returns the statement that creates a table, with the types of each
// kind of database.
func schemaOf(table string) dialect.Schema {
	with := func(words ...string) []string { return []string{strings.NewReplacer(words...).Replace(table)} }
	return dialect.Schema{
		PostgreSQL: with("SMALL", "smallint", "BIG", "bigint", "NOW", "timestamptz NOT NULL DEFAULT pg_catalog.now()",
			"FALSE", "boolean NOT NULL DEFAULT false", "SYSTEM", "system", "OPTIONS", " WITH (fillfactor = 70)"),
		SQLite: with("SMALL", "INTEGER", "BIG", "INTEGER", "NOW", "TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP",
			"FALSE", "INTEGER NOT NULL DEFAULT 0", "SYSTEM", "system", "OPTIONS", ""),
		MySQL: with("SMALL", "SMALLINT", "BIG", "BIGINT", "NOW", "TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)",
			"FALSE", "BOOLEAN NOT NULL DEFAULT FALSE", "SYSTEM", "system_id", "OPTIONS", " ENGINE = InnoDB"), // MySQL reserves the word system
	}
}

// FenceSchema returns the statements that create the tables of Fence. A session
// on MySQL creates missing ones when it draws a token.
func FenceSchema() dialect.Schema {
	s := schemaOf(`CREATE TABLE IF NOT EXISTS latchkey_fence (
	key_space SMALL NOT NULL,
	key_id    BIG NOT NULL,
	SYSTEM    BIG NOT NULL, -- of the token
	timeline  BIG NOT NULL, -- its epoch
	lsn       BIG NOT NULL, -- its number
	fenced_at NOW,
	stale     FALSE,
	PRIMARY KEY (key_space, key_id),
	CONSTRAINT latchkey_fence_stale CHECK (NOT stale)
)OPTIONS`)
	s.MySQL = append([]string{
		`CREATE TABLE IF NOT EXISTS latchkey_tokens (
	only_row    TINYINT NOT NULL PRIMARY KEY CHECK (only_row = 1),
	system_id   BIGINT NOT NULL,
	server_hash BIGINT NOT NULL, -- of the server of the last one
	epoch       BIGINT NOT NULL, -- rises when that changes
	number      BIGINT NOT NULL
) ENGINE = InnoDB`,
		`INSERT IGNORE INTO latchkey_tokens (only_row, system_id, server_hash, epoch, number) VALUES (1, FLOOR(RAND() * 9007199254740991), 0, 0, 0)`,
	}, s.MySQL...)
	return s
}

// WatermarkSchema returns the statements that create the table of watermarks.
func WatermarkSchema() dialect.Schema {
	return schemaOf(`CREATE TABLE IF NOT EXISTS latchkey_watermarks (
	key_space SMALL NOT NULL,
	key_id    BIG NOT NULL,
	mark      BIG NOT NULL,
	marked_at NOW,
	PRIMARY KEY (key_space, key_id)
)OPTIONS`)
}
