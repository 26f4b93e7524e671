package pgtest

import "testing"

func TestLongStandby(t *testing.T) {
	t.Parallel()
	t.Run("as installed", func(t *testing.T) {
		t.Parallel()
		testStandby(t, func(*Cluster) {})
	})
	t.Run("without pg_basebackup", func(t *testing.T) {
		t.Parallel()
		testStandby(t, func(c *Cluster) { c.programs.dir = t.TempDir() })
	})
}

// testStandby makes a standby of a cluster, which prepared for that, and
// promotes it.
func testStandby(t *testing.T, prepare func(*Cluster)) {
	c := New(t)
	do(t, c.DSN(""), "CREATE TABLE before ()")
	do(t, c.DSN(""), "ALTER SYSTEM SET work_mem = '5MB'")
	installed := c.programs
	prepare(c)
	s, err := c.Standby()
	c.programs = installed
	must(t, err)
	if !ask[bool](t, s.DSN(""), "SELECT to_regclass('before') IS NOT NULL") {
		t.Error("a standby lacks what its primary had before")
	}
	if got := ask[string](t, s.DSN(""), "SHOW work_mem"); got != "5MB" {
		t.Errorf("work_mem = %s on the standby, want what its primary was altered to", got)
	}
	if !ask[bool](t, s.DSN(""), "SELECT pg_is_in_recovery()") {
		t.Error("a standby is not in recovery")
	}
	if ask[bool](t, c.DSN(""), "SELECT pg_is_in_recovery()") {
		t.Error("its primary is")
	}
	if execute(t.Context(), s.DSN(""), "CREATE TABLE refused ()") == nil {
		t.Error("a standby accepts writes")
	}

	do(t, c.DSN(""), "CREATE TABLE followed ()")
	follows := func() {
		t.Helper()
		must(t, poll(startTimeout, "the table to arrive", func() (bool, error) {
			return queryValue[bool](t.Context(), s.DSN(""), "SELECT to_regclass('followed') IS NOT NULL")
		}))
	}
	follows()
	must(t, s.Kill())
	must(t, s.StartAgain())
	follows()

	if c.Promote() == nil {
		t.Error("Promote of a primary: no error")
	}
	must(t, c.Kill())
	must(t, s.Promote())
	do(t, s.DSN(""), "CREATE TABLE accepted ()")
	if got := ask[string](t, s.DSN(""), "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)"); got != "00000002" {
		t.Errorf("timeline %s after a failover, want 2", got)
	}
	// The former primary does not know: split brain.
	must(t, c.StartAgain())
	do(t, c.DSN(""), "CREATE TABLE accepted ()")
}
