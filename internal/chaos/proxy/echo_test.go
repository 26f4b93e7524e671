package proxy

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// An echo is a server that sends back what it gets, and tells how its
// connections end.
type echo struct {
	addr  string
	ended chan error // of each connection; io.EOF: the other side said goodbye
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	e := &echo{addr: listener.Addr().String(), ended: make(chan error, 10)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go e.serve(conn)
		}
	}()
	return e
}

func (e *echo) serve(conn net.Conn) {
	defer conn.Close()
	for buf := make([]byte, 1024); ; {
		n, err := conn.Read(buf)
		if err == nil {
			_, err = conn.Write(buf[:n])
		}
		if err != nil {
			e.ended <- err
			return
		}
	}
}

// start starts a proxy to e and connects to it.
func start(t *testing.T, e *echo, abrupt bool) (*Proxy, net.Conn) {
	t.Helper()
	p, err := Start(e.addr, abrupt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, dial(t, p)
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// expect reads want from conn.
func expect(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("read %q (%v), want %q", got[:n], err, want)
	}
}

// expectSilence checks that nothing comes, the end of conn included.
func expectSilence(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if n, err := conn.Read(buf); !isTimeout(err) {
		t.Fatalf("read %q (%v), want silence", buf[:n], err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// endOf is how conn ends.
func endOf(t *testing.T, conn net.Conn) error {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := conn.Read(make([]byte, 100)); err != nil {
			return err
		}
	}
}

func ended(t *testing.T, e *echo) error {
	t.Helper()
	select {
	case err := <-e.ended:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("the server's side does not end")
		return nil
	}
}
