package leasetable

import "strings"

// types are the names of column types.
type types struct {
	small, number, moment, text, random string

	byKey string // makes a table keep its rows in the order of its key, without an index of its own
}

var (
	postgresTypes = types{"smallint", "bigint", "timestamptz", "text", "(pg_catalog.random() * 9007199254740991::double precision)::bigint", ""}
	sqliteTypes   = types{"INTEGER", "INTEGER", "INTEGER", "TEXT", "abs(random() / 1024)", " WITHOUT ROWID"}
)

// PostgreSQLSchema returns the statements that create the lease tables in
// PostgreSQL.
func PostgreSQLSchema() []string { return leaseTables(postgresTypes) }

// SQLiteSchema returns the statements that create the lease tables in SQLite.
func SQLiteSchema() []string { return leaseTables(sqliteTypes) }

// leaseTables returns the statements that create missing lease tables.
//
// No session uses latchkey_secret_checks. It is there for lockdoctor, and for
// processes of an earlier release in the same fleet, which check secrets in it.
func leaseTables(t types) []string {
	statements := strings.Split(leaseDDL, ";\n")
	words := strings.NewReplacer("SMALL", t.small, "NUMBER", t.number, "MOMENT", t.moment, "STRING", t.text, "RANDOM", t.random, " BYKEY", t.byKey)
	for i, s := range statements {
		statements[i] = words.Replace(strings.TrimSpace(s))
	}
	return statements
}

// leaseDDL has the statements, with placeholders for types.
const leaseDDL = `CREATE TABLE IF NOT EXISTS latchkey_sessions (
	id        NUMBER NOT NULL PRIMARY KEY,
	expires   MOMENT NOT NULL, -- by the database's clock
	statement NUMBER NOT NULL, -- the last one's number
	holder    STRING NOT NULL  -- for people: host/process
);
CREATE TABLE IF NOT EXISTS latchkey_locks (
	key_space SMALL NOT NULL,
	key_id    NUMBER NOT NULL,
	session   NUMBER NOT NULL,
	acquired  MOMENT NOT NULL,
	PRIMARY KEY (key_space, key_id)
) BYKEY;
CREATE TABLE IF NOT EXISTS latchkey_secret_checks (
	class   NUMBER NOT NULL, -- of a namespace
	fingerprint NUMBER NOT NULL, -- of the secret that its keys are made with
	session NUMBER NOT NULL,
	PRIMARY KEY (class, fingerprint, session)
) BYKEY;
CREATE TABLE IF NOT EXISTS latchkey_tokens (
	only_row SMALL NOT NULL PRIMARY KEY CHECK (only_row = 1),
	system   NUMBER NOT NULL,
	number   NUMBER NOT NULL
);
INSERT INTO latchkey_tokens (only_row, system, number) VALUES (1, RANDOM, 0) ON CONFLICT DO NOTHING`

// MySQLSchema returns the statements that create the lease tables in MySQL's SQL,
// in addition to those of fences.
func MySQLSchema() []string {
	return []string{`CREATE TABLE IF NOT EXISTS latchkey_sessions (
	id          BIGINT NOT NULL PRIMARY KEY,
	expires     BIGINT NOT NULL, -- microseconds since 1970, by the database's clock
	statement   BIGINT NOT NULL, -- the last one's number
	counts_from BIGINT NOT NULL, -- of its locks, those with a lower number do not count
	holder      VARCHAR(300) NOT NULL -- for people: host/process
) ENGINE = InnoDB`, `CREATE TABLE IF NOT EXISTS latchkey_locks (
	key_space SMALLINT NOT NULL,
	key_id    BIGINT NOT NULL,
	session   BIGINT NOT NULL,
	statement BIGINT NOT NULL, -- that inserted it, or the last that has found it
	acquired  TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), -- for people
	PRIMARY KEY (key_space, key_id),
	KEY latchkey_locks_session (session)
) ENGINE = InnoDB`}
}
