package databases

import (
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// eachTenant runs test for each driver, on one server.
func eachTenant(t *testing.T, test func(t *testing.T, p *tenant), opts ...pgtest.Option) {
	t.Parallel()
	server := newSharedServer(t, opts...)
	drivers(t, func(t *testing.T, driver string) { test(t, server.tenant(t, driver)) })
}

// pg_cancel_backend in a loop fails statements. It ends no lock that is held,
// and leaves none behind.
func TestLongStatementsCancelledInALoop(t *testing.T) {
	eachTenant(t, func(t *testing.T, p *tenant) {
		s := p.session()
		lock := mustLock(t, s, p.key(1))
		done := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-done:
						return
					default:
					}
					lock, err := s.TryLock(t.Context(), p.key(10+i))
					if err == nil {
						err = lock.Unlock()
					}
					if err != nil && !errors.Is(err, sqllock.ErrUnavailable) && !errors.Is(err, sqllock.ErrHeld) {
						t.Errorf("a call while statements are cancelled: %v", err)
					}
				}
			})
		}
		for range 300 {
			p.exec("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = '%[2]s'")
		}
		close(done)
		wg.Wait()
		if err := lock.Err(); err != nil || s.Stats().Losses > 0 {
			t.Errorf("the lock: %v; losses: %v", err, s.Stats().LossesBy)
		}
		p.beats(s, lock)
		for i := range 4 {
			awaitGrant(t, "the keys are free", s, p.key(10+i))
		}
		p.wantQuietLog(40) // and not a line for each of 300
	})
}

// A server has no connection left just when a Session has lost its own. Callers
// are told so, and the Session connects as soon as there is room. Ordinary roles
// do not get the slots that are reserved for superusers.
func TestLongServerOutOfConnections(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		p := newSharedServer(t, pgtest.WithSettings(map[string]string{"max_connections": "12"})).tenant(t, driver)
		s := p.session(sqllock.WithLease(20 * time.Second))
		lock := mustLock(t, s, p.key(1))
		var hog []*sql.Conn
		crowd := p.pool()
		crowd.SetMaxOpenConns(0)
		fill := func() bool {
			conn, err := crowd.Conn(t.Context())
			if err == nil {
				hog = append(hog, conn)
			}
			return err != nil
		}
		lockertest.Eventually(t, "the server has no connection left", fill)
		p.beats(s, lock)
		losses := 0
		lockertest.Eventually(t, "the crowd gets the Session's slot", func() bool { // or the Session gets it again
			_, err := s.TryLock(t.Context(), p.key(2))
			if err == nil || errors.Is(err, sqllock.ErrHeld) {
				losses++
				p.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '%[2]s' AND application_name LIKE '%latchkey'")
			}
			fill()
			return err != nil && strings.Contains(err.Error(), "no connection to spare")
		})
		awaitLoss(t, lock)
		p.fails(s, sqllock.ErrUnavailable, "no connection to spare")
		for _, conn := range hog {
			_ = conn.Close()
		}
		_ = crowd.Close()
		p.serves(s)
		p.wantQuietLog(1 + losses)
	})
}
