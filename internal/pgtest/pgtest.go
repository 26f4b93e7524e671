// Package pgtest starts throwaway PostgreSQL servers for tests and examples, and
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
// Database and Temporary use the server that LATCHKEY_TEST_POSTGRES (a DSN)
// names, if it is set. All else comes from PostgreSQL's programs: in the directory
// that LATCHKEY_TEST_PGBIN names, if it is set, else in PATH, or where Debian, Red
// Hat, Homebrew and Postgres.app put them. A server holds no goroutine of this
// process, and does not outlive it, however it ends. Its files are in TMPDIR; if
// that is not set, in memory where there is room for them.
package pgtest
