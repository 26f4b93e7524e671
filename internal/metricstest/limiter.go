package metricstest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// requests is the series of the requests of a limiter with a result.
func requests(limiter, result string) string {
	return fmt.Sprintf(`latchkey_limiter_requests_total{limiter=%q,result=%q}`, limiter, result)
}

// of is the series name of a limiter.
func of(name, limiter string) string { return fmt.Sprintf(`%s{limiter=%q}`, name, limiter) }

// limit returns a limiter that s shows.
func limit(s Subject, locks sqllock.Locker, ns sqllock.Namespace, opts ...ratelimit.Option) *ratelimit.Limiter {
	l := ratelimit.OneAtATime(locks, ns, append(s.LimiterOptions(), opts...)...)
	s.Limiter(l)
	return l
}

// open opens a Session that s shows.
func open(t *testing.T, s Subject, name, driver, dsn string, opts ...sqllock.Option) *sqllock.Session {
	t.Helper()
	locks := dbtest.Session(t, driver, dsn, append(s.SessionOptions(name), opts...)...)
	s.Session(name, locks)
	return locks
}

func acquire(t *testing.T, l *ratelimit.Limiter, id string) *sqllock.Lock {
	t.Helper()
	lock, err := l.Acquire(t.Context(), id)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return lock
}

// Each result of a request counts once, under its own word. Every other word is
// there too, and is 0.
func results(t *testing.T, start func(*testing.T) Subject) {
	tests := []struct {
		result string
		opts   []ratelimit.Option
		busy   bool // another process holds the id
		away   bool // the database
		id     string
	}{
		{result: "admitted", id: "ada"},
		{result: "busy", id: "ada", busy: true},
		{result: "wait_timeout", id: "ada", busy: true, opts: []ratelimit.Option{ratelimit.WithWait(5*time.Millisecond, 1)}},
		{result: "dry_run", id: "ada", busy: true, opts: []ratelimit.Option{ratelimit.WithDryRun()}},
		{result: "error", id: ""},
		{result: "failed_open", id: "ada", away: true, opts: []ratelimit.Option{ratelimit.WithFailOpen()}},
	}
	words := []string{"admitted", "busy", "wait_timeout", "canceled", "failed_open", "dry_run", "error"}
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		s := start(t)
		locks, elsewhere := dbtest.Session(t, driver, dsn), dbtest.Session(t, driver, dsn)
		for _, tt := range tests {
			var locker sqllock.Locker = locks
			if tt.away {
				locker = httptesting.Failing{Err: sqllock.ErrUnavailable}
			}
			l := limit(s, locker, sqllock.Namespace(tt.result), tt.opts...)
			counts := figures{}
			for _, word := range words {
				counts[requests(tt.result, word)] = 0
			}
			want(t, s, counts)
			if tt.busy {
				dbtest.Lock(t, elsewhere, l.Namespace().Key(tt.id))
			}
			_, _ = l.Acquire(t.Context(), tt.id) // the figures say how it ended
			counts[requests(tt.result, tt.result)] = 1
			want(t, s, counts)
		}
	})
}

// A lock that is held is active, and a request that waits is queued. At its end
// each has a duration.
func holdAndQueue(t *testing.T, start func(*testing.T) Subject) {
	const (
		active, durations = "latchkey_limiter_active_leases", "latchkey_limiter_lease_duration_seconds"
		queued, times     = "latchkey_limiter_queued_requests", "latchkey_limiter_request_time_in_queue_seconds"
	)
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		s := start(t)
		l := limit(s, dbtest.Session(t, driver, dsn), "export", ratelimit.WithWait(time.Hour, 2))
		released, lost := acquire(t, l, "ada"), acquire(t, l, "bob")
		want(t, s, figures{of(active, "export"): 2})
		ctx, cancel := context.WithCancel(t.Context())
		wait := func(ctx context.Context) <-chan error {
			done := make(chan error, 1)
			go func() { _, err := l.Acquire(ctx, "ada"); done <- err }()
			return done
		}
		canceled := wait(ctx)
		eventually(t, s, of(queued, "export"), 1)
		admitted := wait(t.Context())
		eventually(t, s, of(queued, "export"), 2)
		cancel()
		if err := <-canceled; !errors.Is(err, context.Canceled) {
			t.Fatalf("Acquire: %v", err)
		}
		want(t, s, figures{of(queued, "export"): 1, requests("export", "canceled"): 1, of(times+"_count", "export"): 1})
		dbtest.Unlock(t, released)
		if err := <-admitted; err != nil {
			t.Fatalf("Acquire: %v", err)
		}
		want(t, s, figures{
			of(queued, "export"): 0, requests("export", "admitted"): 3, of(times+"_count", "export"): 2,
			of(active, "export"): 2, of(durations+"_count", "export"): 1,
		})
		httptesting.Terminate(t, dbtest.Open(t, driver, dsn))
		<-lost.Context().Done()
		eventually(t, s, of(durations+"_count", "export"), 3)
		eventually(t, s, of(active, "export"), 0)
		for _, name := range []string{durations, times} {
			if sum := read(t, s)[of(name+"_sum", "export")]; sum <= 0 {
				t.Errorf("%s has the sum %v", name, sum)
			}
		}
	})
}

// The figures of limiters of one namespace are added up, and one that is given
// twice counts once. The oldest lease is that of any of them. A counter never
// falls while its series is shown: a reader would take the rest for an increase.
func sameNamespace(t *testing.T, start func(*testing.T) Subject) {
	s := start(t)
	locks := sqllock.NewMemory()
	one := ratelimit.OneAtATime(locks, "export", s.LimiterOptions()...)
	remove := s.Limiter(one)
	two := limit(s, locks, "export")
	s.Limiter(two)
	active, age := of("latchkey_limiter_active_leases", "export"), of("latchkey_limiter_oldest_lease_seconds", "export")
	want(t, s, figures{active: 0, age: 0})
	for range 3 {
		dbtest.Unlock(t, acquire(t, one, "ada"))
	}
	acquire(t, one, "eve")
	second := acquire(t, two, "bob")
	if _, err := two.Acquire(t.Context(), "eve"); !errors.Is(err, ratelimit.ErrBusy) {
		t.Fatalf("Acquire: %v", err)
	}
	counters := figures{
		requests("export", "admitted"):                                5,
		requests("export", "busy"):                                    1,
		of("latchkey_limiter_lease_duration_seconds_count", "export"): 3,
		active: 2,
	}
	want(t, s, counters)
	oldest := func() float64 { return max(one.Stats().Oldest, two.Stats().Oldest).Seconds() }
	before := oldest()
	got := read(t, s)[age]
	if after := oldest(); got < before || got > after {
		t.Errorf("the oldest lease is %v s old, want %v to %v", got, before, after)
	}
	remove()
	counters[active] = 1
	want(t, s, counters)
	dbtest.Unlock(t, second)
	counters[active], counters[age] = 0, 0
	counters[of("latchkey_limiter_lease_duration_seconds_count", "export")]++
	want(t, s, counters)
}
