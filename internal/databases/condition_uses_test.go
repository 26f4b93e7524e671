package databases

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// uses are what a service does with the kit. A promise that is broken fails the
// test.
var uses = []struct {
	name string
	use  func(u user)
}{
	{"Session", useSession},
	{"WithRegistry", useRegistry},
	{"WithLeaseTable", useLeaseTable},
	{"TryTx", useTryTx},
	{"PerTx", usePerTx},
	{"OnConn", useOnConn},
	{"Fence", useFence},
	{"watermark", useWatermark},
	{"idempotency", useIdempotency},
}

// A user is a service that uses the kit on a stage.
type user struct {
	*testing.T
	stage
	ctx context.Context // its end only ends a hang
}

// An endOfUse is the panic that ends a use at its first error.
type endOfUse struct{ err error }

// An ownError is an error of a statement of the caller's, from the driver.
type ownError struct{ error }

func (e *ownError) Unwrap() error { return e.error }

// try carries out use, and returns the error that kept it from working.
func (s stage) try(t *testing.T, use func(u user)) (err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*soon)
	defer cancel()
	defer func() {
		r := recover()
		end, ok := r.(endOfUse)
		if r != nil && !ok {
			panic(r)
		}
		err = end.err
	}()
	use(user{t, s, ctx})
	return nil
}

// must ends the use if a step of the kit has failed.
func (u user) must(step string, err error) {
	if err != nil {
		panic(endOfUse{fmt.Errorf("%s: %w", step, err)})
	}
}

// own ends the use if a step of the caller's has failed.
func (u user) own(step string, err error) {
	if err != nil {
		panic(endOfUse{&ownError{fmt.Errorf("%s: %w", step, err)}})
	}
}

// rejected checks that err says that a key is held.
func (u user) rejected(step string, err error) {
	u.Helper()
	if err == nil {
		u.Errorf("%s: a held key is granted", step)
	} else if !errors.Is(err, sqllock.ErrHeld) {
		u.must(step, err)
	}
}

// lock acquires key, which is free.
func (u user) lock(l sqllock.Locker, key sqllock.Key) *sqllock.Lock {
	lock, err := l.TryLock(u.ctx, key)
	u.must("TryLock", err)
	return lock
}

// lockHeld tries for key, which is held.
func (u user) lockHeld(l sqllock.Locker, key sqllock.Key) {
	u.Helper()
	_, err := l.TryLock(u.ctx, key)
	u.rejected("TryLock of the other", err)
}

// open opens a Session on db.
func (u user) open(db *sql.DB, opts ...sqllock.Option) *sqllock.Session {
	locks, err := sqllock.Open(context.Background(), db, opts...)
	u.must("Open", err)
	u.Cleanup(func() { _ = locks.Close() })
	return locks
}

// pair opens two Sessions that stand for two processes.
func (u user) pair(opts ...sqllock.Option) (a, b *sqllock.Session) {
	return u.open(u.unprepared(u.T), opts...), u.open(u.unprepared(u.T), opts...)
}

// begin begins a transaction of the caller's.
func (u user) begin(db *sql.DB) *sql.Tx {
	tx, err := db.BeginTx(u.ctx, nil)
	u.own("BeginTx", err)
	u.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// userKey is the i-th key of a use.
func userKey(use string, i int) sqllock.Key {
	return sqllock.Namespace("conditions").Key(fmt.Sprint("user-1 ", use, i))
}

// useSession goes through what a Session promises, and ends with a loss.
func useSession(u user) {
	a, b := u.pair()
	useBoth(u, "session", a, b)
	secrets := sqllock.Namespace("secrets")
	lock := u.lock(a, secrets.Keyed([]byte("one")).Key("user-1"))
	if _, err := b.TryLock(u.ctx, secrets.Keyed([]byte("two")).Key("user-1")); err == nil {
		u.Error("two secrets of one namespace are not noticed")
	}
	u.must("Unlock", lock.Unlock())
	var readers sqllock.Locks
	for _, l := range []*sqllock.Session{a, b} {
		lock, err := l.RLock(u.ctx, userKey("readers", 1))
		u.must("RLock", err)
		readers = append(readers, lock)
	}
	u.lockHeld(b, userKey("readers", 1))
	u.must("Unlock of readers", readers.Unlock())

	lost := u.lock(a, userKey("lost", 1))
	if n := u.endAll(u.T, "application_name LIKE '%latchkey'"); n < 2 {
		u.Errorf("%d connections of two Sessions", n)
	}
	awaitLoss(u.T, lost)
	u.must("TryLock after a loss", u.servesAgain(a, userKey("lost", 1)))
}

// servesAgain tries key until l grants it. After a limit that only ends a hang
// it returns the last error.
func (u user) servesAgain(l sqllock.Locker, key sqllock.Key) error {
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		lock, err := l.TryLock(u.ctx, key)
		if err == nil {
			return lock.Unlock()
		}
		if time.Now().After(limit) {
			return err
		}
	}
}

// useBoth goes through what Sessions of every kind promise.
func useBoth(u user, name string, a, b *sqllock.Session) {
	key := func(i int) sqllock.Key { return userKey(name, i) }
	lock := u.lock(a, key(1))
	u.lockHeld(b, key(1))
	_, err := lock.Token(u.ctx)
	u.must("Token", err)
	waited := make(chan error, 1)
	go func() {
		next, err := b.Lock(u.ctx, key(1))
		if err == nil {
			err = next.Unlock()
		}
		waited <- err
	}()
	lockertest.Eventually(u.T, "a caller waits", func() bool { return b.Stats().Waiting == 1 || len(waited) == 1 })
	u.must("Unlock", lock.Unlock())
	u.must("Lock", <-waited)

	all, err := a.TryLockAll(u.ctx, key(2), key(3))
	u.must("TryLockAll", err)
	_, err = b.TryLockAll(u.ctx, key(3), key(4))
	u.rejected("TryLockAll of the other", err)
	each, err := lockertest.TryEach(u.ctx, b, [][]sqllock.Key{{key(5), key(6)}, {key(2), key(7)}})
	u.must("TryEach", err)
	_, err = lockertest.TryEach(u.ctx, a, [][]sqllock.Key{{key(8)}, {key(2), key(7)}})
	u.rejected("TryEach of the other", err)
	secret := key(0).Namespace().Keyed([]byte("one"))
	keyed := u.lock(a, secret.Key("user-1"))
	u.lockHeld(b, secret.Key("user-1"))
	u.must("Unlock", errors.Join(all.Unlock(), each.Unlock(), keyed.Unlock()))
}

// useRegistry has a Session write down its lock, and lockwatch show it.
func useRegistry(u user) {
	log := new(httptesting.Logbook)
	locks := u.open(u.pool(u.T), sqllock.WithRegistry(""), sqllock.WithHeartbeat(20*time.Millisecond), sqllock.WithHolder("Zoë"), sqllock.WithLogger(log.Logger()))
	lock := u.lock(locks, userKey("registry", 1))
	lock.SetName("Zoë's \\ export'")
	db := u.pool(u.T)
	until := time.Now().Add(soon)
	for shown := false; !shown; time.Sleep(5 * time.Millisecond) {
		snapshot, err := lockwatch.Inspect(u.ctx, db)
		u.must("Inspect", err)
		for _, h := range snapshot.Holders {
			shown = shown || h.Registration != nil && h.Registration.Name != ""
		}
		for line := range strings.Lines(log.String()) {
			// A write that took too long is made again, with the next heartbeat.
			if strings.Contains(line, "cannot be written") && !strings.Contains(line, "(statement_timeout)") {
				u.must("the log", errors.New(line))
			}
		}
		if time.Now().After(until) {
			u.Fatal("the registry does not show the lock")
		}
	}
	u.must("Unlock", lock.Unlock())
}

// useLeaseTable goes through what a Session with a lease table promises.
func useLeaseTable(u user) {
	a, b := u.pair(sqllock.WithLeaseTable())
	useBoth(u, "lease table", a, b)
	lock := u.lock(a, userKey("lease fence", 1))
	_, err := lockwatch.Inspect(u.ctx, u.unprepared(u.T))
	u.must("Inspect", err)
	fenced(u, lock)
	u.must("Close", errors.Join(lock.Unlock(), a.Close(), b.Close()))
}

// useTryTx takes keys in transactions of the caller.
func useTryTx(u user) {
	db := u.pool(u.T)
	one, two := u.begin(db), u.begin(db)
	u.must("TryTx", sqllock.TryTx(u.ctx, one, userKey("tx", 1)))
	u.rejected("TryTx of the other", sqllock.TryTx(u.ctx, two, userKey("tx", 1)))
	u.rejected("LockTx of the other", sqllock.LockTx(u.ctx, two, userKey("tx", 1), 5*time.Millisecond))
	u.must("RLockTx", sqllock.RLockTx(u.ctx, one, userKey("tx", 2), time.Second))
	u.own("Commit", one.Commit())
	u.must("LockTx", sqllock.LockTx(u.ctx, two, userKey("tx", 1), soon))
	u.own("Commit", two.Commit())
}

// usePerTx takes a key on a transaction for each lock.
func usePerTx(u user) {
	db := u.pool(u.T)
	lock := u.lock(sqllock.PerTx(db), userKey("pertx", 1))
	defer lock.Unlock()
	other, err := sqllock.PerTx(db, sqllock.WithLease(time.Minute)).TryLock(u.ctx, userKey("pertx", 1))
	if err != nil && !errors.Is(err, sqllock.ErrHeld) {
		u.must("TryLock of the other", err)
	}
	lost := lock.Unlock()
	if err == nil {
		if lost == nil {
			u.Error("two transactions hold a key")
		}
		_ = other.Unlock()
	}
	u.must("Unlock", lost)
}

// useOnConn takes a key on connections of the caller.
func useOnConn(u user) {
	db := u.pool(u.T)
	var lockers []*sqllock.ConnLocker
	for range 2 {
		conn, err := db.Conn(u.ctx)
		u.own("Conn", err)
		defer conn.Close()
		lockers = append(lockers, sqllock.OnConn(conn))
	}
	lock := u.lock(lockers[0], userKey("conn", 1))
	defer lock.Unlock()
	u.lockHeld(lockers[1], userKey("conn", 1))
	u.must("Unlock", lock.Unlock())
}

// useFence fences a transaction for a lock of a Session.
func useFence(u user) { fenced(u, u.lock(u.open(u.pool(u.T)), userKey("fence", 1))) }

// fenced commits work under a fence, and sees that the work of a stale lock is
// rejected.
func fenced(u user, lock *sqllock.Lock) {
	work := func() error {
		tx := u.begin(u.pool(u.T))
		defer tx.Rollback()
		if err := sqllock.Fence(u.ctx, tx, lock); err != nil {
			return err
		}
		_, err := tx.ExecContext(u.ctx, "INSERT INTO effects VALUES ('fenced')")
		u.own("INSERT", err)
		u.own("Commit", tx.Commit())
		return nil
	}
	u.must("Fence", work())
	execute(u.T, u.admin, "UPDATE latchkey_fence SET lsn = lsn + 1000000000")
	defer execute(u.T, u.admin, "DELETE FROM latchkey_fence")
	if err := work(); err == nil {
		u.Error("a stale lock passes the fence")
	} else if !errors.Is(err, sqllock.ErrFenced) {
		u.must("Fence", err)
	}
}

// useWatermark raises a watermark.
func useWatermark(u user) {
	db, key := u.pool(u.T), userKey("mark", 1)
	advance := func(to int64) error {
		tx := u.begin(db)
		defer tx.Rollback()
		if err := watermark.Advance(u.ctx, tx, key, to); err != nil {
			return err
		}
		u.own("Commit", tx.Commit())
		return nil
	}
	before, _, err := watermark.Get(u.ctx, db, key)
	u.must("Get", err)
	u.must("Advance", advance(before+2))
	if err := advance(before + 1); err == nil {
		u.Error("a watermark goes back")
	} else if !errors.Is(err, watermark.ErrPassed) {
		u.must("Advance", err)
	}
	mark, ok, err := watermark.Get(u.ctx, db, key)
	u.must("Get", err)
	if !ok || mark != before+2 {
		u.Errorf("watermark %d, %t", mark, ok)
	}
}

// idempotencyStatus returns a function that posts a request with a key of its
// own twice. Its effect and its response are stored once. The function returns
// the status, what is logged, and how the handler's own statement failed.
func idempotencyStatus(t *testing.T, s stage) func() (int, string, error) {
	log := new(httptesting.Logbook)
	var failed error // the handler's statement
	once := idempotency.New(s.pool(t), ratelimit.OneAtATime(sqllock.NewMemory(), "pay"), func(*http.Request) (string, error) { return "ada", nil },
		idempotency.WithLogger(log.Logger()))
	body := []byte("paid \x00\xff\\'é")
	runs := 0
	pay := once.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		tx, _ := idempotency.Tx(r.Context())
		if _, failed = tx.ExecContext(r.Context(), "INSERT INTO effects VALUES ('paid')"); failed != nil {
			http.Error(w, "INSERT", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(body)
	}))
	return func() (int, string, error) {
		before, key := runs, rand.Text()
		for range 2 {
			response := post(t.Context(), pay, key, "10 to bob")
			if response.Code != http.StatusOK {
				return response.Code, log.String(), failed
			}
			if !bytes.Equal(response.Body.Bytes(), body) {
				t.Errorf("body %q, want %q", response.Body.Bytes(), body)
			}
		}
		if runs != before+1 {
			t.Errorf("%d runs of two equal requests", runs-before)
		}
		return http.StatusOK, "", nil
	}
}

// useIdempotency posts a request twice.
func useIdempotency(u user) {
	status, log, failed := idempotencyStatus(u.T, u.stage)()
	u.own("INSERT", failed)
	if status != http.StatusOK {
		u.must("idempotency", fmt.Errorf("status %d, log %s", status, log))
	}
}
