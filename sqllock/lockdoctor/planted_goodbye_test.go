package lockdoctor_test

import (
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
)

// The proof closes a connection, and the server counts it until its process
// has ended. The doctor still finds which limit is too low.
func TestPlantedLimitAndSlowEnd(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "pgx", pgtest.New(t), 0)
	p.execute(t, "ALTER ROLE ROLE CONNECTION LIMIT 1")
	p.dsn = lateGoodbyes(t, p.dsn, 200*time.Millisecond)
	p.reopen(t)
	mustFind(t, examine(t, p.db), "connections", lockdoctor.Error, "ALTER ROLE CURRENT_USER CONNECTION LIMIT")
}

// lateGoodbyes returns the DSN of a relay to the server of dsn. When a client
// has closed a connection, the server learns of it late.
func lateGoodbyes(tb testing.TB, dsn string, late time.Duration) string {
	tb.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var relays sync.WaitGroup
	tb.Cleanup(relays.Wait)
	tb.Cleanup(func() { _ = listener.Close() })
	server := u.Host
	relays.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			relays.Go(func() { relay(client, server, late) })
		}
	})
	u.Host = listener.Addr().String()
	return u.String()
}

// relay copies between client and server until either closes.
func relay(client net.Conn, server string, late time.Duration) {
	defer client.Close()
	backend, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	var toClient sync.WaitGroup
	defer toClient.Wait()
	defer backend.Close()
	toClient.Go(func() {
		forward(client, backend)
		_ = client.Close()
	})
	forward(backend, client)
	time.Sleep(late) // the fault
}

// forward copies what from sends, until it ends or takes its leave: Terminate
// is the only message of a client that begins with an X, and it is sent alone.
func forward(to, from net.Conn) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil || buffer[0] == 'X' && n == 5 {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
