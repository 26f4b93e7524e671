package databases

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// poolSettings are what a service sets on its pool, at the start or at work.
var poolSettings = []struct {
	name string
	set  func(db *sql.DB)
}{
	{"SetConnMaxLifetime(1ms)", func(db *sql.DB) { db.SetConnMaxLifetime(time.Millisecond) }},
	{"SetConnMaxIdleTime(1ms)", func(db *sql.DB) { db.SetConnMaxIdleTime(time.Millisecond) }},
	{"SetMaxIdleConns(0)", func(db *sql.DB) { db.SetMaxIdleConns(0) }},
	{"SetMaxOpenConns(5)", func(db *sql.DB) { db.SetMaxOpenConns(5) }},
	{"SetMaxOpenConns(100)", func(db *sql.DB) { db.SetMaxOpenConns(100) }},
}

// shared returns s with one pool for all, of n connections, which prepares
// nothing.
func (s stage) shares(t *testing.T, n int) (stage, *sql.DB) {
	t.Helper()
	db := s.unprepared(t)
	db.SetMaxOpenConns(n)
	return s.on(db), db
}

// With every setting of a pool that all share, everything works.
func TestLongPoolSettings(t *testing.T) {
	t.Parallel()
	for _, p := range poolSettings {
		t.Run(p.name, func(t *testing.T) {
			eachStage(t, func(t *testing.T, s stage) {
				s, db := s.shares(t, 10)
				p.set(db)
				s.tryAll(t, nil, nil)
			})
		})
	}
}

// fill takes all connections that db may open, until the function it returns is
// called. It goes on to ask for one, since another user may give one back.
func fill(t *testing.T, db *sql.DB) (release func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	var conns []*sql.Conn
	go func() {
		defer close(done)
		for {
			conn, err := db.Conn(ctx)
			if err != nil {
				return
			}
			conns = append(conns, conn)
		}
	}()
	lockertest.Eventually(t, "all connections are in use", func() bool { return db.Stats().InUse == db.Stats().MaxOpenConnections })
	return func() {
		stop()
		<-done
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
}

// The work takes all connections of a pool that all share. What has its own
// connection goes on. All others return, and say why.
func TestLongPoolExhausted(t *testing.T) {
	eachStage(t, func(t *testing.T, s stage) {
		s, db := s.shares(t, 4)
		advisory := session(t, db, sqllock.WithLease(40*time.Second)) // its calls are bounded as in a service
		table := session(t, db, sqllock.WithLeaseTable(), sqllock.WithLease(2*time.Second))
		lock, row := awaitLock(t, advisory, userKey("held", 1)), awaitLock(t, table, userKey("held", 2))
		perTx, err := sqllock.PerTx(db).TryLock(t.Context(), userKey("held", 3))
		must(t, err)
		once := idempotencyStatus(t, s)
		if status, _, _ := once(); status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
		release := fill(t, db)
		awaitGrant(t, "a Session serves on its own connection", advisory, userKey("held", 4))
		lockertest.Eventually(t, "the holder of a row is told that its lease cannot be renewed", func() bool { return errors.Is(row.Err(), sqllock.ErrLost) })
		if _, err := table.TryLock(context.Background(), userKey("held", 5)); !errors.Is(err, sqllock.ErrUnavailable) {
			t.Errorf("lease table: %v, want ErrUnavailable", err)
		}
		if status, log, _ := once(); status != http.StatusServiceUnavailable || !strings.Contains(log, "all of its pool is in use") {
			t.Errorf("idempotency: status %d, %s", status, log)
		}
		brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // PerTx waits for 5 s, and Inspect as long as its context
		defer cancel()
		for name, call := range map[string]func() error{
			"PerTx":   func() error { _, err := sqllock.PerTx(db).TryLock(brief, userKey("held", 5)); return err },
			"Inspect": func() error { _, err := lockwatch.Inspect(brief, db); return err },
		} {
			if err := call(); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, sqllock.ErrUnavailable) {
				t.Errorf("%s without a connection: %v, want the end of its context", name, err)
			}
		}
		if _, err := sqllock.Open(t.Context(), db, sqllock.WithLease(2*time.Second)); !errors.Is(err, sqllock.ErrUnavailable) {
			t.Errorf("Open: %v, want ErrUnavailable", err)
		}
		// The Session loses its connection, and has no other.
		s.endAll(t, "application_name LIKE '%latchkey'")
		<-lock.Context().Done()
		awaitError(t, advisory, userKey("held", 4), sqllock.ErrUnavailable, "")
		release()
		for name, l := range map[string]sqllock.Locker{"Session": advisory, "lease table": table, "PerTx": sqllock.PerTx(db)} {
			awaitGrant(t, name+" serves again", l, userKey("held", 6))
		}
		if err := perTx.Unlock(); err != nil {
			t.Errorf("Unlock of a lock on its own transaction: %v", err)
		}
		_, _ = advisory.Close(), table.Close()
		s.leavesNothing(t)
	})
}

// db.Close while locks are held. Those on connections of their own last until
// they are released. The holder of a row is told, and calls say why they fail.
func TestLongPoolClosedAtWork(t *testing.T) {
	eachStage(t, func(t *testing.T, s stage) {
		s, db := s.shares(t, 10)
		conn, err := db.Conn(t.Context())
		must(t, err)
		lockers := map[string]sqllock.Locker{
			"Session": session(t, db), "PerTx": sqllock.PerTx(db), "OnConn": sqllock.OnConn(conn),
			"lease table": session(t, db, sqllock.WithLeaseTable(), sqllock.WithLease(2*time.Second)),
		}
		held := map[string]*sqllock.Lock{}
		for name, l := range lockers {
			held[name] = awaitLock(t, l, userKey("close "+name, 1))
		}
		closed := make(chan error, 1)
		go func() { closed <- db.Close() }() // waits for the connections in use
		lockertest.Eventually(t, "the pool is closed", func() bool { return db.PingContext(t.Context()) != nil })
		for _, name := range []string{"Session", "PerTx", "OnConn"} {
			if err := errors.Join(held[name].Err(), held[name].Unlock()); err != nil {
				t.Errorf("%s: a lock after db.Close: %v", name, err)
			}
		}
		awaitLoss(t, held["lease table"])
		awaitGrant(t, "a Session whose pool is closed serves", lockers["Session"], userKey("close", 2))
		s.endAll(t, "application_name LIKE '%latchkey'")
		for _, name := range []string{"Session", "PerTx", "lease table"} {
			lockertest.Eventually(t, name+" says that the pool is closed", func() bool {
				_, err := lockers[name].TryLock(t.Context(), userKey("close", 2))
				return errors.Is(err, sqllock.ErrUnavailable) && strings.Contains(err.Error(), "the *sql.DB was closed")
			})
		}
		must(t, conn.Close())
		must(t, lockers["lease table"].(*sqllock.Session).Close())
		must(t, lockers["Session"].(*sqllock.Session).Close())
		must(t, <-closed)
		s.leavesNothing(t)
	})
}
