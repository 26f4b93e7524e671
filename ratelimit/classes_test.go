package ratelimit_test

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/shard"
)

type classKey struct{}

// classOf returns the class of a context that as has made.
func classOf(ctx context.Context) string {
	name, _ := ctx.Value(classKey{}).(string)
	return name
}

// as returns ctx for requests of a class.
func as(ctx context.Context, class string) context.Context {
	return context.WithValue(ctx, classKey{}, class)
}

// admitted counts how many requests of a class are admitted for id until it is
// full, at most 20.
func admitted(t *testing.T, l *ratelimit.Limiter, id, class string) (n int) {
	t.Helper()
	for ; n < 20; n++ {
		lock, err := l.Acquire(as(t.Context(), class), id)
		if errors.Is(err, ratelimit.ErrBusy) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lock.Unlock() })
	}
	return n
}

// Only requests of its class may have a reserved place. They may have the
// common ones, too. The Locker tries several keys in one call, or one at a time.
func TestReservedPlaces(t *testing.T) {
	t.Parallel()
	classes := ratelimit.WithClasses(classOf, ratelimit.Class{Name: "person", Reserved: 3}, ratelimit.Class{Name: "probe", Reserved: 1}, ratelimit.Class{Name: "job"})
	for _, tt := range []struct {
		limit int      // of the id, with WithLimit; 0: without
		order []string // of the classes
		want  []int    // how many of each are admitted
	}{
		{0, []string{"", "job", "person", "probe"}, []int{4, 0, 3, 1}},
		{0, []string{"person", "", "probe", "job"}, []int{7, 0, 1, 0}},
		{0, []string{"probe", "person", ""}, []int{5, 3, 0}},
		{6, []string{"", "person", "probe"}, []int{2, 3, 1}},
		{5, []string{"job", "person", "probe"}, []int{1, 3, 1}},
		{4, []string{"", "person", "probe"}, []int{1, 3, 0}}, // the first of the classes get theirs
		{2, []string{"", "probe", "person"}, []int{1, 0, 1}},
		{1, []string{"probe"}, []int{1}}, // one place stays common
		{1, []string{""}, []int{1}},
	} {
		opts := []ratelimit.Option{classes}
		if tt.limit > 0 {
			opts = append(opts, ratelimit.WithLimit(newPlan(tt.limit).limit))
		}
		for _, way := range waitCases()[1:] {
			l := ratelimit.AtMost(8, way.locks(), "export", opts...)
			sum := 0
			for i, class := range tt.order {
				got := admitted(t, l, "ada", class)
				if got != tt.want[i] {
					t.Errorf("%s, limit %d, %q: %d requests of class %q, want %d", way.name, tt.limit, tt.order, got, class, tt.want[i])
				}
				sum += got
			}
			if limit := max(tt.limit, 1); tt.limit > 0 && sum > limit {
				t.Errorf("%s: %d requests, the limit is %d", way.name, sum, limit)
			}
		}
	}
}

// A class that does not exist is an error that names the option, and not the
// name: it could be an id.
func TestUnknownClass(t *testing.T) {
	t.Parallel()
	l := ratelimit.AtMost(2, sqllock.NewMemory(), "export", ratelimit.WithClasses(classOf, ratelimit.Class{Name: "person"}))
	_, err := l.Acquire(as(t.Context(), "grace"), "ada")
	if !errors.Is(err, ratelimit.ErrPolicy) || !strings.Contains(err.Error(), "WithClasses") || strings.Contains(err.Error(), "grace") {
		t.Errorf("got %v, want ErrPolicy of WithClasses without the name", err)
	}
}

// Of the requests that wait in one process, those with a higher Priority go
// first. In a class the first to come is the first to be served.
func TestPriority(t *testing.T) {
	for _, limited := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			opts := []ratelimit.Option{
				ratelimit.WithWait(time.Hour, 9),
				ratelimit.WithClasses(classOf, ratelimit.Class{Name: "job", Priority: -1}, ratelimit.Class{Name: "person", Priority: 5}),
			}
			if limited {
				opts = append(opts, ratelimit.WithLimit(newPlan(1).limit))
			}
			l := ratelimit.AtMost(2, sqllock.NewMemory(), "export", opts...)
			held := fill(t, l, "ada", 1)
			if !limited {
				held = append(held, must(t, l, "ada"))
			}
			served := make(chan string, 9)
			var holders sync.WaitGroup
			defer holders.Wait()
			for _, name := range []string{"job 1", "none 1", "person 1", "job 2", "none 2", "person 2"} {
				class, _, _ := strings.Cut(strings.Replace(name, "none", "", 1), " ")
				holders.Go(func() {
					lock, err := l.Acquire(as(t.Context(), class), "ada")
					if err != nil {
						t.Error(err)
					}
					served <- name
					time.Sleep(time.Second)
					_ = lock.Unlock()
				})
				synctest.Wait()
			}
			unlock(t, held[0])
			for _, want := range []string{"person 1", "person 2", "none 1", "none 2", "job 1", "job 2"} {
				if got := <-served; got != want {
					t.Errorf("limited %v: %s was served, want %s", limited, got, want)
				}
			}
		})
	}
}

// The Priority counts in every shape of limits and reserved places. Two classes
// of one demand share what is common, and the higher one has nearly all of it.
// The lower one has its reserved places.
func TestPriorityWithReservedPlaces(t *testing.T) {
	for _, tt := range []struct {
		name        string
		most, limit int // of AtMost; of WithLimit, or 0
		person, job ratelimit.Class
	}{
		{"a job has a place, below the limit", 8, 4, ratelimit.Class{Priority: 1}, ratelimit.Class{Reserved: 1, Priority: -1}},
		{"a person has places, below the limit", 50, 20, ratelimit.Class{Reserved: 10, Priority: 1}, ratelimit.Class{Priority: -1}},
		{"both have places, below the limit", 8, 6, ratelimit.Class{Reserved: 2, Priority: 1}, ratelimit.Class{Reserved: 1, Priority: -1}},
		{"the limit leaves one common place", 8, 2, ratelimit.Class{Priority: 1}, ratelimit.Class{Reserved: 1, Priority: -1}},
		{"no limit of an id", 4, 0, ratelimit.Class{Priority: 1}, ratelimit.Class{Reserved: 1, Priority: -1}},
		{"no reserved places", 8, 4, ratelimit.Class{Priority: 1}, ratelimit.Class{Priority: -1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			const hold, lasts = time.Second, 300 * time.Second
			tt.person.Name, tt.job.Name = "person", "job"
			opts := []ratelimit.Option{ratelimit.WithWait(time.Hour, 1000), ratelimit.WithClasses(classOf, tt.person, tt.job)}
			if tt.limit > 0 {
				opts = append(opts, ratelimit.WithLimit(newPlan(tt.limit).limit))
			}
			limit := cmp.Or(tt.limit, tt.most)
			l := ratelimit.AtMost(tt.most, sqllock.NewMemory(), "export", opts...)
			ctx, cancel := context.WithCancel(t.Context())
			served := map[string]*atomic.Int64{"person": {}, "job": {}}
			var callers sync.WaitGroup
			for class, n := range served {
				for range 2 * limit { // always more than there are places
					callers.Go(func() {
						for {
							lock, err := l.Acquire(as(ctx, class), "ada")
							if err != nil {
								return
							}
							n.Add(1)
							time.Sleep(hold)
							unlock(t, lock)
						}
					})
				}
			}
			time.Sleep(lasts)
			cancel()
			callers.Wait()
			rounds := int(lasts / hold)
			job := tt.job.Reserved * rounds
			person := (limit - tt.job.Reserved) * rounds
			if got := int(served["person"].Load()); got < person*95/100 {
				t.Errorf("%s: %d persons, want about %d; %d jobs", tt.name, got, person, served["job"].Load())
			}
			if got := int(served["job"].Load()); got < job*95/100 {
				t.Errorf("%s: %d jobs, want at least about %d; %d persons", tt.name, got, job, served["person"].Load())
			}
			t.Logf("%s: %d persons, %d jobs", tt.name, served["person"].Load(), served["job"].Load())
		})
	}
}

// A request takes the reserved places of its class before common ones, which
// others need: on one of several levels, with many places, and on several
// databases. Otherwise the others would be rejected although places are free.
func TestReservedPlacesComeFirst(t *testing.T) {
	t.Parallel()
	several := shard.New(sqllock.NewMemory(), sqllock.NewMemory(), sqllock.NewMemory())
	for _, tt := range []struct {
		name            string
		locks           sqllock.Locker
		limit, reserved int
		stack           bool
	}{
		{"one level", sqllock.NewMemory(), 8, 3, false},
		{"many places", sqllock.NewMemory(), 100, 10, false},
		{"several databases", several, 20, 5, false},
		{"two levels", sqllock.NewMemory(), 8, 3, true},
		{"two levels with many places", sqllock.NewMemory(), 100, 10, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			users := ratelimit.OneAtATime(tt.locks, "user")
			total := ratelimit.AtMost(tt.limit, tt.locks, "total", ratelimit.WithClasses(classOf, ratelimit.Class{Name: "person", Reserved: tt.reserved}))
			for i := range tt.limit {
				class := "person"
				if i >= tt.reserved {
					class = ""
				}
				levels := []ratelimit.Level{level(total, "all")}
				if tt.stack {
					levels = append(levels, level(users, strconv.Itoa(i)))
				}
				if _, err := ratelimit.AcquireAll(as(t.Context(), class), levels...); err != nil {
					t.Fatalf("request %d of class %q: %v, want a place", i, class, err)
				}
			}
		})
	}
}

// A request of a class with reserved places does not wait behind those without.
// Requests of the class have an order, unless the limit has been raised since the
// one in front looked at it.
func TestReservedPlacesWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		p := newPlan(2)
		l := ratelimit.AtMost(8, sqllock.NewMemory(), "export", ratelimit.WithLimit(p.limit), ratelimit.WithWait(time.Hour, 9),
			ratelimit.WithObserver(j.observe), ratelimit.WithClasses(classOf, ratelimit.Class{Name: "person", Reserved: 1}))
		person := func() <-chan result { return acquire(as(t.Context(), "person"), l, "ada") }
		served := func(c <-chan result) *sqllock.Lock {
			t.Helper()
			if synctest.Wait(); len(c) != 1 {
				t.Fatal("the request still waits")
			}
			return (<-c).locks[0]
		}
		common := must(t, l, "ada")
		other := acquire(t.Context(), l, "ada")
		reserved := served(person())
		if waited := j.last(t, ratelimit.Admitted).Waited; waited != 0 {
			t.Errorf("the first person has waited %v", waited)
		}
		first := person()
		time.Sleep(50 * time.Millisecond)
		second := person()
		time.Sleep(60 * time.Millisecond) // the first looks at its limit again
		for _, c := range []<-chan result{first, second} {
			unlock(t, reserved)
			reserved = served(c)
		}
		unlock(t, reserved)
		p.n.Store(1)
		late := person() // without a reserved place
		p.n.Store(2)
		unlock(t, served(person()))
		unlock(t, common)
		end(t, <-other)
		end(t, <-late)
	})
}
