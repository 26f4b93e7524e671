package pgtest

import "testing"

// A standby has what its primary had, follows it, and can be promoted.
func TestLongStandby(t *testing.T) {
	t.Parallel()
	c := New(t)
	do(t, c.DSN(""), "CREATE TABLE before ()")
	do(t, c.DSN(""), "ALTER SYSTEM SET work_mem = '5MB'")
	s, err := c.Standby()
	must(t, err)
	if !ask[bool](t, s.DSN(""), "SELECT to_regclass('before') IS NOT NULL AND pg_is_in_recovery()") {
		t.Error("a standby lacks what its primary had before, or is none")
	}
	if got := ask[string](t, s.DSN(""), "SHOW work_mem"); got != "5MB" {
		t.Errorf("work_mem = %s on the standby, want what its primary was altered to", got)
	}
	do(t, c.DSN(""), "CREATE TABLE followed ()")
	must(t, poll(startTimeout, "the table to arrive", func() (bool, error) {
		return queryValue[bool](t.Context(), s.DSN(""), "SELECT to_regclass('followed') IS NOT NULL")
	}))
	if c.Promote() == nil {
		t.Error("Promote of a primary: no error")
	}
	must(t, s.Promote())
	do(t, s.DSN(""), "CREATE TABLE accepted ()")
}
