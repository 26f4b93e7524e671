package pgtest

import (
	"errors"
	"net"
	"strconv"
	"testing"
)

// listen takes a port on 127.0.0.1, so that no other process can have it.
func listen(t *testing.T, port int) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// A server whose port is taken when it starts again waits for it.
func TestLongTakenPort(t *testing.T) {
	t.Parallel()
	c := New(t)
	b, err := c.PgBouncer("session", 1)
	must(t, err)
	for _, d := range []*Daemon{b.Daemon, c.Daemon} {
		must(t, d.Stop())
		l := listen(t, d.port)
		d.turn.Lock()
		err := d.startLocked()
		d.turn.Unlock()
		if !errors.Is(err, errPortTaken) {
			t.Fatalf("got %v, want errPortTaken", err)
		}
		started := make(chan error, 1)
		go func() { started <- d.StartAgain() }()
		must(t, l.Close())
		must(t, <-started)
	}
	do(t, b.DSN(""), "SELECT 1")
}
