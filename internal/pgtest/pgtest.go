// Package pgtest starts throwaway PostgreSQL servers for tests and examples. It
// does to them what production does: kill, freeze, promote.
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
//
//	func TestLock(t *testing.T) {
//		db, err := sql.Open("pgx", pgtest.Database(t)) // a fresh database, dropped after the test
//		…
//	}
//
//	c := pgtest.New(t) // a whole server of the test's own: c.Kill(), c.Freeze(), c.Standby()
//
// If LATCHKEY_TEST_POSTGRES is set to a DSN, Database and Temporary use that
// server. Everything else needs PostgreSQL's programs. If LATCHKEY_TEST_PGBIN
// is set, they are in that directory. Otherwise they are in PATH, or where
// Debian, Red Hat, Homebrew and Postgres.app put them.
//
// A server needs no goroutine of this process, and does not outlive it, however
// it ends. Its files are in TMPDIR. If that is not set, they are in memory
// where there is enough room.
package pgtest
