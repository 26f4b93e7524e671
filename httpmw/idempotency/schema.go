package idempotency

import "github.com/latchkey-go/latchkey/sqllock"

// Schema returns the statements that make the table latchkey_responses in a
// database of kind d. Run each of them once, or copy them into your migrations.
// A table that exists stays as it is.
//
// The table has a row for each key. It holds keys and principals as hashes, and
// responses as they were sent. [Middleware.Forget] deletes old rows.
//
// The role of the pool needs SELECT, INSERT, UPDATE and DELETE on the table. In
// PostgreSQL the pool's search_path must find it. In MySQL and MariaDB the
// table belongs in the database that the connection string names.
//
// Schema panics if d is not a constant of package sqllock.
func Schema(d sqllock.Dialect) []string {
	switch d {
	case sqllock.PostgreSQL:
		return []string{
			`CREATE TABLE IF NOT EXISTS latchkey_responses (
	key         bytea       PRIMARY KEY, -- SHA-256 of namespace, principal, route and key
	fingerprint bytea       NOT NULL,    -- SHA-256 of what must be the same in a retry
	status      integer,                 -- null while the handler runs, which no other transaction sees
	header      bytea,
	body        bytea,
	created_at  timestamptz NOT NULL DEFAULT pg_catalog.now()
)`,
			`CREATE INDEX IF NOT EXISTS latchkey_responses_created_at ON latchkey_responses (created_at)`,
		}
	case sqllock.MySQL:
		return []string{"CREATE TABLE IF NOT EXISTS latchkey_responses (\n" +
			"	`key`       BINARY(32)   NOT NULL PRIMARY KEY, -- SHA-256 of namespace, principal, route and key\n" +
			"	fingerprint BINARY(32)   NOT NULL,             -- SHA-256 of what must be the same in a retry\n" +
			"	status      INTEGER,                           -- null while the handler runs, which no other transaction sees\n" +
			"	header      MEDIUMBLOB,\n" +
			"	body        LONGBLOB,\n" +
			"	created_at  TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),\n" +
			"	KEY latchkey_responses_created_at (created_at)\n" +
			") ENGINE = InnoDB"}
	case sqllock.SQLite:
		return []string{
			`CREATE TABLE IF NOT EXISTS latchkey_responses (
	key         BLOB NOT NULL PRIMARY KEY, -- SHA-256 of namespace, principal, route and key
	fingerprint BLOB NOT NULL,             -- SHA-256 of what must be the same in a retry
	status      INTEGER,                   -- null while the handler runs, which no other transaction sees
	header      BLOB,
	body        BLOB,
	created_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) -- UTC
) WITHOUT ROWID`,
			`CREATE INDEX IF NOT EXISTS latchkey_responses_created_at ON latchkey_responses (created_at)`,
		}
	}
	panic("idempotency: Schema knows no dialect " + string(d))
}
