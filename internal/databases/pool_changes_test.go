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
	"github.com/latchkey-go/latchkey/sqllock/election"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
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

// The settings of a pool change while callers come and go. No lock of a Session
// is lost, no key is held twice, and no call hangs.
func TestLongPoolSettingsChangeAtWork(t *testing.T) {
	eachStage(t, func(t *testing.T, s stage) {
		s, db := s.shares(t, 10)
		advisory, table := session(t, db), session(t, db, sqllock.WithLeaseTable())
		kept := sqllock.Locks{mustLock(t, advisory, userKey("kept", 1)), mustLock(t, table, userKey("kept", 2))}
		tr, rows := startTraffic(t, false, advisory, sqllock.PerTx(db)), startTraffic(t, false, table)
		for i := range 500 {
			poolSettings[i%len(poolSettings)].set(db)
			db.SetMaxOpenConns([]int{2, 10, 3, 0}[i%4])
			db.SetMaxIdleConns(i % 3)
			db.SetConnMaxLifetime(time.Duration(i%2) * time.Millisecond)
			time.Sleep(time.Millisecond) // a service changes its pool now and then
		}
		db.SetMaxOpenConns(0)
		tr.flows("after the changes")
		rows.flows("after the changes")
		tr.end()
		rows.end()
		if n := tr.failed[0].Load(); n > 0 { // the others may have had no connection for a moment
			t.Errorf("%d calls of the Session have failed", n)
		}
		if err := kept[0].Err(); err != nil {
			t.Errorf("a lock of a Session: %v", err)
		}
		if err := kept.Unlock(); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		_, _ = advisory.Close(), table.Close()
		s.leavesNothing(t)
	})
}

// fill takes all connections that db may still open, until the function it
// returns is called.
func fill(t *testing.T, db *sql.DB) (release func()) {
	t.Helper()
	var conns []*sql.Conn
	for db.Stats().InUse < db.Stats().MaxOpenConnections {
		conn, err := db.Conn(t.Context())
		must(t, err)
		conns = append(conns, conn)
	}
	return func() {
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

// db.Close while all is at work. Locks on connections of their own last until
// they are released. No call hangs, and nothing remains.
func TestLongPoolClosedAtWork(t *testing.T) {
	eachStage(t, func(t *testing.T, s stage) {
		const says = "the *sql.DB was closed"
		s, db := s.shares(t, 10)
		advisory := session(t, db, sqllock.WithLease(40*time.Second))
		table := session(t, db, sqllock.WithLeaseTable(), sqllock.WithLease(2*time.Second))
		perTx := sqllock.PerTx(db)
		conn, err := db.Conn(t.Context())
		must(t, err)
		onConn := sqllock.OnConn(conn)
		lockers := map[string]sqllock.Locker{"Session": advisory, "lease table": table, "PerTx": perTx, "OnConn": onConn}
		held, waited := map[string]*sqllock.Lock{}, map[string]chan error{}
		waiting, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		for name, l := range lockers {
			held[name] = awaitLock(t, l, userKey("close "+name, 1))
			waited[name] = make(chan error, 1)
			go func() {
				lock, err := l.Lock(waiting, userKey("close "+name, 1))
				if err == nil {
					err = lock.Unlock()
				}
				waited[name] <- err
			}()
		}
		lockertest.Eventually(t, "callers wait", func() bool { return advisory.Stats().Waiting == 1 && table.Stats().Waiting == 1 })
		leading, over := make(chan struct{}), make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			over <- election.New(advisory, userKey("close leader", 1)).Run(ctx, func(term context.Context) error {
				close(leading)
				<-term.Done()
				return nil
			})
		}()
		<-leading
		closed := make(chan error, 1)
		go func() { closed <- db.Close() }()
		lockertest.Eventually(t, "the pool is closed", func() bool { return db.PingContext(t.Context()) != nil })

		for _, name := range []string{"Session", "PerTx", "OnConn"} {
			if err := errors.Join(held[name].Err(), held[name].Unlock()); err != nil {
				t.Errorf("%s: a lock after db.Close: %v", name, err)
			}
		}
		for _, name := range []string{"Session", "OnConn"} { // they need no other connection
			if err := <-waited[name]; err != nil {
				t.Errorf("%s: a caller who waited: %v", name, err)
			}
		}
		lockertest.Eventually(t, "the holder of a row is told of its loss", func() bool { return held["lease table"].Err() != nil })
		awaitError(t, table, userKey("close", 2), sqllock.ErrUnavailable, says) // at first that it does not answer
		if _, err := perTx.TryLock(t.Context(), userKey("close", 2)); !errors.Is(err, sqllock.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("PerTx: %v, want ErrUnavailable with %q", err, says)
		}
		if _, err := lockwatch.Inspect(t.Context(), db); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Inspect: %v, want an error with %q", err, says)
		}
		if _, _, err := watermark.Get(t.Context(), db, userKey("close", 2)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("watermark.Get: %v, want an error with %q", err, says)
		}
		// The Session goes on, until it loses its connection.
		awaitGrant(t, "a Session whose pool is closed serves", advisory, userKey("close", 2))
		s.endAll(t, "application_name LIKE '%latchkey'")
		awaitError(t, advisory, userKey("close", 2), sqllock.ErrUnavailable, says)
		cancel()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		_, _, _ = advisory.Close(), conn.Close(), table.Close()
		giveUp()
		for _, name := range []string{"PerTx", "lease table"} {
			if err := <-waited[name]; err == nil {
				t.Errorf("%s: a caller got a key from a closed pool", name)
			}
		}
		if err := <-closed; err != nil {
			t.Errorf("db.Close: %v", err)
		}
		s.leavesNothing(t)
	})
}
