package pgtest

import (
	"errors"
	"testing"
)

func TestLongStopAndStart(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		running bool // after end
		end     func(*Cluster) error
	}{
		{"kill", false, (*Cluster).Kill},
		{"stop", false, (*Cluster).Stop},
		{"stop frozen", false, func(c *Cluster) error { return errors.Join(c.Freeze(), c.Stop()) }},
		{"kill frozen", false, func(c *Cluster) error { return errors.Join(c.Freeze(), c.Kill()) }},
		{"restart", true, func(c *Cluster) error { return c.Restart(false) }},
		{"immediate restart", true, func(c *Cluster) error { return c.Restart(true) }},
		{"restart when killed", true, func(c *Cluster) error { return errors.Join(c.Kill(), c.Restart(false)) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := New(t)
			dsn, err := c.CreateDatabase(t.Context())
			must(t, err)
			do(t, dsn, "CREATE TABLE kept (n int)")
			do(t, dsn, "SET synchronous_commit = on; INSERT INTO kept VALUES (1)")
			began := ask[string](t, dsn, "SELECT pg_postmaster_start_time()::text")

			must(t, tt.end(c))
			if tt.running {
				if c.StartAgain() == nil {
					t.Error("StartAgain of a running server: no error")
				}
			} else {
				if execute(t.Context(), dsn, "SELECT 1") == nil {
					t.Fatal("the server still responds")
				}
				must(t, c.StartAgain())
			}
			if n := ask[int](t, dsn, "SELECT count(*) FROM kept"); n != 1 {
				t.Errorf("%d rows survived, want 1", n)
			}
			if ask[string](t, dsn, "SELECT pg_postmaster_start_time()::text") == began {
				t.Error("it is still the same server")
			}
		})
	}
}

// A server that dies is noticed at the next call.
func TestLongServerDiesByItself(t *testing.T) {
	t.Parallel()
	c := New(t)
	must(t, c.server.signal(9))
	must(t, poll(startTimeout, "its end", func() (bool, error) { return c.Freeze() == errNotRunning, nil }))
	must(t, c.Kill())
	must(t, c.StartAgain())
	do(t, c.DSN(""), "SELECT 1")
}
