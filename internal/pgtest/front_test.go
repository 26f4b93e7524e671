package pgtest

import (
	"errors"
	"testing"
)

// fronts start each kind of Front in front of c and a standby.
var fronts = map[string]func(c *Cluster, others ...*Cluster) (*Front, error){
	"haproxy": func(c *Cluster, others ...*Cluster) (*Front, error) { return c.HAProxy(nil, others...) },
	"pgpool":  func(c *Cluster, others ...*Cluster) (*Front, error) { return c.Pgpool(nil, others...) },
}

func TestLongFronts(t *testing.T) {
	t.Parallel()
	c := New(t)
	for name, start := range fronts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := start(c)
			if errors.Is(err, ErrNotInstalled) {
				t.Skip(err)
			}
			must(t, err)
			do(t, f.DSN(""), "SELECT 1")
			children, err := childrenOf(f.server.pid)
			must(t, err)
			pids := append(children, f.server.pid)
			must(t, f.Close())
			must(t, f.Close())
			must(t, poll(stopTimeout, "its processes to end", func() (bool, error) {
				for _, pid := range pids {
					if kill(pid, 0) == nil {
						return false, nil
					}
				}
				return true, nil
			}))
			do(t, c.DSN(""), "SELECT 1")
		})
	}
}
