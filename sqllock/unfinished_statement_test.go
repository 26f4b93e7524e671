package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// cutSockets makes sockets of which the next write to the server can lose its
// end. After that the socket carries nothing, and Close does not close it: the
// server sees a client whose host is alive.
type cutSockets struct {
	pq.Dialer // nil: lib/pq calls DialContext

	lose atomic.Int64 // bytes that the next write loses

	mu  sync.Mutex // protects all
	all []net.Conn
}

// A cutSocket is one of them.
type cutSocket struct {
	net.Conn
	of    *cutSockets
	isCut atomic.Bool
}

func (s *cutSockets) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, c)
	return &cutSocket{Conn: c, of: s}, nil
}

func (c *cutSocket) Write(p []byte) (int, error) {
	if c.isCut.Load() {
		return len(p), nil
	}
	if lost := int(c.of.lose.Swap(0)); lost > 0 {
		c.isCut.Store(true)
		n, err := c.Conn.Write(p[:len(p)-lost])
		return n + lost, err
	}
	return c.Conn.Write(p)
}

func (c *cutSocket) Close() error {
	if c.isCut.Load() {
		return c.SetDeadline(time.Unix(1, 0)) // ends a Read
	}
	return c.Conn.Close()
}

// openCut opens a pool with such sockets.
func openCut(t *testing.T, driver, dsn string) (*sql.DB, *cutSockets) {
	t.Helper()
	s := new(cutSockets)
	t.Cleanup(func() {
		for _, c := range s.all {
			_ = c.Close()
		}
	})
	var db *sql.DB
	if driver == "pgx" {
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		config.DialFunc = s.DialContext
		db = stdlib.OpenDB(*config)
	} else {
		connector, err := pq.NewConnector(dsn)
		if err != nil {
			t.Fatal(err)
		}
		connector.Dialer(s)
		db = sql.OpenDB(connector)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db, s
}

// The server gets a statement without its end, and the client's host is alive.
// The server's timeouts for idle sessions do not run then.
func TestLongStatementWithoutItsEnd(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		for _, encrypted := range []bool{false, true} {
			dsn := cluster.DSN("")
			observer := open(t, driver, dsn)
			if encrypted {
				dsn = pgtest.OverTLS(dsn)
			}
			db, sockets := openCut(t, driver, dsn)
			s := sessionOn(t, db, sqllock.WithLease(5*time.Second), sqllock.WithLazyOpen()) // TryLock takes 0.9 s of it
			lock := lockSoon(t, s, sqllock.ID(1))
			pid := number(t, observer, sessionPID)
			sockets.lose.Store(5) // the message that ends a statement
			if _, err := s.TryLock(t.Context(), sqllock.ID(2)); !errors.Is(err, sqllock.ErrUnavailable) {
				t.Fatalf("TryLock whose statement lost its end: %v, want ErrUnavailable", err)
			}
			if !encrypted {
				const reading = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND wait_event = 'ClientRead' AND pid = $1"
				if number(t, observer, reading, pid) != 1 {
					t.Fatal("the server does not wait for the end of a statement")
				}
			}
			lockertest.Eventually(t, "the key is free", func() bool { return advisoryLocks(t, observer) == 0 })
			if err := lock.Err(); err != sqllock.ErrLost {
				t.Errorf("TLS %v: the key is free, and its holder's Err is %v", encrypted, err)
			}
			servesAgain(t, s, sqllock.ID(1))
			lockertest.Eventually(t, "the server process of the lost connection is gone", func() bool {
				return number(t, observer, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid) == 0
			})
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			lockertest.Eventually(t, "no connection of the Session remains", func() bool { return sessions(t, observer) == 0 })
		}
	}, pgtest.WithTLS())
}
