package lockdoctor_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
)

// Under load, with connections that are lost, the audit raises no false alarm:
// locks come and go between its looks, some regularly, and others stay.
func TestLongAuditUnderLoad(t *testing.T) {
	const callers, keys, audits = 14, 6, 40
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := dbtest.Open(t, driver, fit(driver, dsn))
		busy := dbtest.Session(t, driver, dsn)
		rival := dbtest.Session(t, driver, dsn, sqllock.WithAsyncUnlock())
		sessions := []*sqllock.Session{busy, rival}
		for n := range 200 { // which stay
			dbtest.Lock(t, sessions[n%2], sqllock.Pair(int32(n), 1))
		}
		ctx, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				for ctx.Err() == nil {
					load(ctx, sessions[caller%2], int64(caller*10+rand.IntN(keys)), caller)
				}
			})
		}
		// One look at the audit, and sometimes the end of a connection.
		for n := range audits {
			r := examine(t, db, lockdoctor.WithSession(busy), lockdoctor.WithSession(rival))
			if audit, _ := r.Find("audit"); audit.State == lockdoctor.Error {
				t.Errorf("audit %d: %+v", n, audit)
			}
			if n%10 == 9 {
				dbtest.Execute(t, db, "SELECT pg_terminate_backend(pid) FROM ("+dbtest.SessionPID+") AS s")
			}
		}
		stop()
		wg.Wait()
		t.Logf("%d and %d statements meanwhile", busy.Stats().Exchanges, rival.Stats().Exchanges)
	})
}

// load acquires a key in one of several ways and releases it.
func load(ctx context.Context, s *sqllock.Session, key int64, way int) {
	var lock interface{ Unlock() error }
	var err error
	switch secret := sqllock.Namespace("load").Keyed([]byte("a secret of sixteen")); way % 7 {
	case 0:
		lock, err = s.TryLock(ctx, sqllock.ID(key%10)) // contended between the Sessions
	case 1:
		lock, err = s.TryRLock(ctx, sqllock.Pair(int32(key), 7))
	case 2:
		lock, err = s.TryLock(ctx, secret.Key(string(rune('a'+key))))
	case 3:
		bounded, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		lock, err = s.Lock(bounded, sqllock.ID(key%10))
		cancel()
	case 4:
		lock, err = s.TryLockAll(ctx, sqllock.ID(key%10), sqllock.ID(key%10+1), secret.Key("set"))
	case 5:
		bounded, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		lock, err = s.RLock(bounded, sqllock.ID(key%10))
		cancel()
	case 6:
		lock, err = s.TryAny(ctx, sqllock.ID(key%10), sqllock.ID(key%10+1))
	}
	if err != nil {
		return // the loop tries again
	}
	if way%3 == 0 {
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Microsecond) // the work
	}
	_ = lock.Unlock() // an error is a loss that the test has caused
}
