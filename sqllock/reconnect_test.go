package sqllock_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// After a cut of the network a Session serves again while an attempt to connect
// still hangs: it does not wait for that attempt to fail. Bytes that a
// connection loses in the cut never arrive.
func TestLongReconnectWhileAnAttemptHangs(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		reconnectWhileAnAttemptHangs(t, driver, dsn, 5)
	})
}

// A pool of two connections has none for a second attempt while the first one
// hangs. The Session then cancels the first one. lib/pq ignores that.
func TestLongReconnectWithASmallPool(t *testing.T) {
	t.Parallel()
	reconnectWhileAnAttemptHangs(t, "pgx", pgtest.Database(t), 2)
}

func reconnectWhileAnAttemptHangs(t *testing.T, driver, dsn string, pool int) {
	for name, cut := range map[string]func(w *lossyProxy, on bool){
		"to the client": func(w *lossyProxy, on bool) { w.toClient = on },
		"to the server": func(w *lossyProxy, on bool) { w.toServer = on },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, through := startLossyProxy(t, dsn)
			var log lockedBuffer
			db := open(t, driver, through)
			db.SetMaxOpenConns(pool)
			db.SetMaxIdleConns(0) // each attempt opens connections of its own
			// The bounds are long: an attempt that hangs does not fail in this test.
			s := sessionOn(t, db, sqllock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			w.change(func(w *lossyProxy) {
				cut(w, true)
				w.reset()
			})
			lockertest.Eventually(t, "the connection is lost", func() bool { return s.Stats().Losses == 1 })
			lockertest.Eventually(t, "an attempt to connect hangs", func() bool { return w.hanging() > 1 })
			w.change(func(w *lossyProxy) { cut(w, false) })
			lockertest.Eventually(t, "it serves again", func() bool {
				_, err := s.TryLock(context.Background(), sqllock.ID(1))
				return err == nil
			})
			if n := log.count("cannot connect"); n != 0 {
				t.Error("the attempt that hung had to fail first")
			}
		})
	}
}

// BenchmarkBackAfterCut cuts the network for 5 to 10 s in each run. It reports
// how long after the end of the cut the first lock is granted.
//
//	go test ./sqllock -run - -bench BackAfterCut -benchtime 50x -timeout 2h
func BenchmarkBackAfterCut(b *testing.B) {
	for _, driver := range pgtest.Drivers() {
		for _, direction := range []string{"client", "server"} {
			b.Run(driver+"/to the "+direction, func(b *testing.B) {
				w, through := startLossyProxy(b, pgtest.Database(b))
				if driver == "postgres" {
					through += "&connect_timeout=5" // without it lib/pq waits for ever
				}
				s := session(b, driver, through, sqllock.WithLease(2*time.Second))
				var took []time.Duration
				for i := range b.N {
					cut := func(on bool) {
						w.change(func(w *lossyProxy) { w.toClient, w.toServer = on && direction == "client", on && direction == "server" })
					}
					cut(true)
					time.Sleep(5*time.Second + time.Duration(i%50)*100*time.Millisecond)
					cut(false)
					healed := time.Now()
					for {
						lock, err := s.TryLock(context.Background(), sqllock.ID(1))
						if err == nil {
							took = append(took, time.Since(healed))
							_ = lock.Unlock()
							break
						}
						time.Sleep(5 * time.Millisecond)
					}
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "p50-ms")
				b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "p99-ms")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
