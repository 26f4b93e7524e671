package ratelimit_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// least returns the least RetryAfter of some rejections for id, which must be
// busy. It is the time without the random part: the first client that is rejected
// by a hold has none, and for a hold elsewhere one of three.
func least(t *testing.T, l *ratelimit.Limiter, id string) time.Duration {
	t.Helper()
	d := told(t, l, id)
	for range 200 {
		d = min(d, told(t, l, id))
	}
	return d
}

// told returns the RetryAfter of a rejection for id, which must be busy.
func told(t *testing.T, l *ratelimit.Limiter, id string) time.Duration {
	t.Helper()
	_, err := l.Acquire(t.Context(), id)
	var busy *ratelimit.BusyError
	if !errors.As(err, &busy) {
		t.Fatalf("got %v, want a BusyError", err)
	}
	return busy.RetryAfter
}

// hold acquires a lock for id, and releases it after d.
func hold(t *testing.T, l *ratelimit.Limiter, id string, d time.Duration) {
	t.Helper()
	lock := must(t, l, id)
	time.Sleep(d)
	unlock(t, lock)
}

// An id of which this process has a hold is told when that one should end. For
// others the mean of all holds counts.
func TestRetryAfterLearnt(t *testing.T) {
	const s = time.Second
	type holds = []time.Duration
	tests := []struct {
		name  string
		ended holds // that are over
		own   holds // the ages of those of the id; nil: another process has it
		want  time.Duration
	}{
		{"nothing known", nil, nil, s},
		{"at least a second", holds{s / 100}, nil, s},
		{"at most a minute", holds{time.Hour}, nil, time.Minute},
		{"the first hold is all that is known", holds{8 * s}, nil, 8 * s},
		{"then each counts for an eighth", holds{8 * s, 16 * s}, nil, 9 * s},
		{"and downwards", holds{8 * s, 16 * s, s}, nil, 8 * s},

		{"it has just begun", holds{9 * s}, holds{0}, 9 * s},
		{"most of it is over", holds{9 * s}, holds{7 * s}, 2 * s},
		{"it is about to end", holds{9 * s}, holds{9 * s}, s},
		{"it is late", holds{9 * s}, holds{13 * s}, 4 * s},
		{"it hangs", holds{9 * s}, holds{49 * s}, 40 * s},
		{"at most a minute if it hangs", holds{9 * s}, holds{time.Hour}, time.Minute},
		{"nothing has ended yet", nil, holds{30 * s}, 30 * s},
		{"the first of two", holds{9 * s}, holds{6 * s, 2 * s}, 3 * s},
		{"one of two hangs", holds{9 * s}, holds{49 * s, 2 * s}, 7 * s},
		{"both hang", holds{9 * s}, holds{49 * s, 29 * s}, 20 * s},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := sqllock.NewMemory()
				l := ratelimit.AtMost(max(len(tt.own), 1), locks, "export")
				for _, d := range tt.ended {
					hold(t, l, "ada", d)
				}
				for i, age := range tt.own {
					must(t, l, "grace")
					if i+1 < len(tt.own) {
						age -= tt.own[i+1]
					}
					time.Sleep(age)
				}
				if tt.own == nil {
					must(t, ratelimit.OneAtATime(locks, "export"), "grace")
				}
				if got := least(t, l, "grace"); got != tt.want {
					t.Errorf("got %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// A lost hold counts as one that was released.
func TestRetryAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := sqllock.NewMemory()
		l := ratelimit.OneAtATime(locks, "export")
		hold(t, l, "ada", 8*time.Second)
		must(t, l, "ada")
		time.Sleep(8 * time.Second)
		locks.Lose()
		hold(t, l, "ada", 16*time.Second)
		must(t, ratelimit.OneAtATime(locks, "export"), "grace")
		if got, want := least(t, l, "grace"), 9*time.Second; got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// registryLocker knows how long other processes have held some keys.
type registryLocker struct {
	fakeLocker
	ages map[sqllock.Key]time.Duration
}

func (r registryLocker) HeldFor(key sqllock.Key) (time.Duration, bool) {
	age, ok := r.ages[key]
	return age, ok
}

// If this process has no hold of the id, those of other processes count, as far
// as the Locker knows them.
func TestRetryAfterOfOtherProcesses(t *testing.T) {
	const ns = sqllock.Namespace("export")
	slot := func(i int) sqllock.Key { return ns.SlotKey("ada", i) }
	tests := []struct {
		name string
		ages map[sqllock.Key]time.Duration
		want time.Duration
	}{
		{"unknown", nil, time.Second},
		{"of another id", map[sqllock.Key]time.Duration{ns.SlotKey("eve", 0): 9 * time.Second}, time.Second},
		{"one", map[sqllock.Key]time.Duration{slot(1): 9 * time.Second}, 9 * time.Second},
		{"the first to end", map[sqllock.Key]time.Duration{slot(0): 9 * time.Second, slot(1): 5 * time.Second}, 5 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := ratelimit.AtMost(2, registryLocker{failing(sqllock.ErrHeld), tt.ages}, ns)
			if got := least(t, l, "ada"); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// Clients that were rejected one after the other are told different times: a
// random time more for each that was rejected before. So they do not return
// together. The first is told when the hold should end.
func TestRetryAfterIsSpread(t *testing.T) {
	for _, tt := range []struct {
		hold  time.Duration
		limit int
		more  time.Duration // at most, for each that was rejected before
	}{
		{time.Millisecond, 1, time.Second}, // a second is the least that counts
		{8 * time.Second, 1, 8 * time.Second},
		{8 * time.Second, 4, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := ratelimit.AtMost(tt.limit, sqllock.NewMemory(), "export")
			hold(t, l, "ada", tt.hold)
			fill(t, l, "ada", tt.limit)
			least := max(tt.hold, time.Second)
			differ := make(map[time.Duration]bool)
			for ahead := range 100 {
				got := told(t, l, "ada")
				if most := least + min(time.Duration(ahead)*tt.more, time.Minute); got < least || got > most {
					t.Errorf("%v is told with %d ahead, want %v to %v", got, ahead, least, most)
				}
				differ[got] = true
			}
			if len(differ) < 90 {
				t.Errorf("%d different times, want 100", len(differ))
			}
		})
	}
}

func TestWithRetryAfter(t *testing.T) {
	tests := []struct {
		name string
		f    func(time.Duration) time.Duration
		want time.Duration
	}{
		{"twice", func(d time.Duration) time.Duration { return 2 * d }, 8 * time.Second},
		{"less than a second", func(time.Duration) time.Duration { return time.Millisecond }, time.Millisecond},
		{"nothing", func(time.Duration) time.Duration { return 0 }, time.Second},
		{"the past", func(time.Duration) time.Duration { return -time.Hour }, time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithRetryAfter(tt.f))
				must(t, l, "ada")
				time.Sleep(4 * time.Second)
				if got := told(t, l, "ada"); got != tt.want {
					t.Errorf("got %v, want %v", got, tt.want)
				}
			})
		})
	}
}
