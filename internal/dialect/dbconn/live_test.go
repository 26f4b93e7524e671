package dbconn

import (
	"context"
	"database/sql"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// must fails the test if a step that the test needs has failed.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// hung is how long a call must not take on the busiest machine.
const hung = time.Minute

// A slowSocket returns from a write late while slow is true, as on a machine
// without a processor to spare. The response comes meanwhile.
type slowSocket struct {
	*net.TCPConn
	slow *atomic.Bool
}

func (s slowSocket) Write(p []byte) (int, error) {
	n, err := s.TCPConn.Write(p)
	if s.slow.Load() {
		time.Sleep(200 * time.Millisecond) // pgx reads in the background after 15 ms
	}
	return n, err
}

// After a slow write pgx has a goroutine that reads from the idle connection. It
// reads until something comes, and Live does not wait for it.
func TestLiveBesideReader(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(pgtest.Database(t))
	must(t, err)
	var slow atomic.Bool
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return slowSocket{conn.(*net.TCPConn), &slow}, nil
	}
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	conn := reused(t, db)
	before := pidOf(t, conn)
	slow.Store(true)
	_, err = conn.ExecContext(t.Context(), "SELECT 1")
	must(t, err)
	slow.Store(false)
	must(t, conn.Close())
	type result struct {
		conn *sql.Conn
		err  error
	}
	lent := make(chan result, 1)
	go func() {
		conn, err := Live(t.Context(), db)
		lent <- result{conn, err}
	}()
	select {
	case got := <-lent:
		if got.err != nil {
			t.Fatal(got.err)
		}
		defer got.conn.Close()
		if after := pidOf(t, got.conn); after != before {
			t.Errorf("Live returned a connection of the process %d, want the idle one of %d", after, before)
		}
	case <-time.After(hung):
		t.Fatal("Live waits for the driver's goroutine")
	}
}

// reused returns a connection that has been in the pool. pgx pings it when it
// leaves the pool for the first time, and not again for a second.
func reused(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	for range 2 {
		must(t, db.PingContext(t.Context()))
	}
	conn, err := db.Conn(t.Context())
	must(t, err)
	return conn
}

// pidOf returns the id of conn's server process.
func pidOf(t *testing.T, conn *sql.Conn) (pid int) {
	t.Helper()
	must(t, conn.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	return pid
}

// Live passes over a connection that has ended. It keeps one on which the server
// has sent something else, such as a notification: it is another user's, and may
// listen.
func TestLive(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		for _, tt := range []struct {
			name, event string
			same        bool
		}{
			{"nothing has come", "SELECT $1::int", true},
			{"a notification has come", "SELECT pg_notify('live', $1::int::text)", true},
			{"it has ended", "SELECT pg_terminate_backend($1::int)", false},
		} {
			t.Run(driver+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.Database(t)
				db, admin := pool(t, driver, dsn), pool(t, driver, dsn)
				conn := reused(t, db)
				_, err := conn.ExecContext(t.Context(), "LISTEN live")
				must(t, err)
				before, socket := pidOf(t, conn), SocketOf(conn, nil)
				must(t, conn.Close())
				_, err = admin.ExecContext(t.Context(), tt.event, before)
				must(t, err)
				for began := time.Now(); tt.name != "nothing has come" && !hasArrived(socket); time.Sleep(time.Millisecond) {
					if time.Since(began) > hung {
						t.Fatal("nothing arrives")
					}
				}
				conn, err = Live(t.Context(), db)
				must(t, err)
				defer conn.Close()
				if after := pidOf(t, conn); (after == before) != tt.same {
					t.Errorf("Live returned a connection of the process %d after %d, want the same: %v", after, before, tt.same)
				}
			})
		}
	}
}

// pool returns a pool of connections to a database.
func pool(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A driver that bounds its reads leaves a deadline behind, which has passed when
// the connection has been idle for a while (readTimeout of MySQL's). That is not
// its end.
func TestArrivedPastDeadline(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	must(t, err)
	defer client.Close()
	server, err := listener.Accept()
	must(t, err)
	defer server.Close()
	must(t, client.SetReadDeadline(time.Unix(1, 0)))
	if hasArrived(client) {
		t.Error("a connection whose read deadline has passed counts as ended")
	}
	must(t, server.Close())
	for began := time.Now(); !hasArrived(client); time.Sleep(time.Millisecond) {
		if time.Since(began) > hung {
			t.Fatal("a connection that the server has closed does not count as ended")
		}
	}
}
