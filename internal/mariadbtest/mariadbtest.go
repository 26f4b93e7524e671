// Package mariadbtest starts throwaway MariaDB servers for tests. It does to
// them what production does: stop, kill, freeze.
//
//	func TestMain(m *testing.M) { os.Exit(mariadbtest.Main(m)) }
//
//	func TestLock(t *testing.T) {
//		db, err := sql.Open("mysql", mariadbtest.Database(t)) // a fresh database, dropped after the test
//		…
//	}
//
//	s := mariadbtest.New(t) // a whole server of the test's own: s.Kill(), s.Freeze()
//
// It needs MariaDB's programs, in PATH or where Debian, Red Hat and Homebrew
// put them. A server is a Daemon of package pgtest, and the contract of
// pgtest's servers applies.
package mariadbtest
