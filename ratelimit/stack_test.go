package ratelimit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// level is short for a Level.
func level(l *ratelimit.Limiter, id string) ratelimit.Level {
	return ratelimit.Level{Limiter: l, ID: id}
}

// stackLockers are Lockers in pairs, for two levels: a shared one that acquires
// both in one call, and others that do not.
func stackLockers() map[string][2]sqllock.Locker {
	one, single := sqllock.NewMemory(), onlyOne{sqllock.NewMemory()}
	return map[string][2]sqllock.Locker{
		"one call":      {one, one},
		"one key":       {single, single},
		"two databases": {sqllock.NewMemory(), sqllock.NewMemory()},
		"mixed":         {sqllock.NewMemory(), onlyOne{sqllock.NewMemory()}},
	}
}

// A stack has a place on each level, or none. The error names the full level,
// and the request counts there alone.
func TestAcquireAll(t *testing.T) {
	t.Parallel()
	for name, lockers := range stackLockers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var users, totals journal
			perUser := ratelimit.AtMost(2, lockers[0], "user", ratelimit.WithObserver(users.observe))
			total := ratelimit.AtMost(3, lockers[1], "total", ratelimit.WithObserver(totals.observe))
			enter := func(user string, wantFull sqllock.Namespace) sqllock.Locks {
				t.Helper()
				locks, err := ratelimit.AcquireAll(t.Context(), level(perUser, user), level(total, "all"))
				var busy *ratelimit.BusyError
				switch {
				case wantFull == "" && err != nil:
					t.Fatalf("got %v, want locks", err)
				case wantFull == "":
					t.Cleanup(func() { _ = locks.Unlock() })
					if len(locks) != 2 || locks[0].Key().Namespace() != "user" || locks[1].Key().Namespace() != "total" {
						t.Fatalf("locks %v, want one of each level in order", locks)
					}
				case !errors.As(err, &busy) || busy.Namespace != string(wantFull) || locks != nil:
					t.Fatalf("got %v, %v; want %s to be full", locks, err, wantFull)
				}
				return locks
			}
			enter("ada", "")
			second := enter("ada", "")
			enter("ada", "user")
			third := enter("grace", "")
			enter("edsger", "total")
			must(t, perUser, "edsger") // the rejection has left nothing
			must(t, perUser, "edsger")
			unlock(t, second[1]) // each lock by itself
			enter("ada", "user")
			unlock(t, second[0])
			if err := third.Unlock(); err != nil {
				t.Fatal(err)
			}
			enter("ada", "")
			users.agree(t, perUser.Stats())
			totals.agree(t, total.Stats())
			if n, m := perUser.Stats().Requests[ratelimit.Busy], total.Stats().Requests[ratelimit.Busy]; n != 2 || m != 1 {
				t.Errorf("%d and %d requests were busy, want 2 of the user's and 1 of all", n, m)
			}
		})
	}
}

// Bad input is an error that says so. Nothing is acquired, and one level at the
// most counts it.
func TestAcquireAllBadInput(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	user, other := ratelimit.OneAtATime(locks, "user"), ratelimit.AtMost(2, locks, "user")
	total := ratelimit.AtMost(9, locks, "total", ratelimit.WithMaxIDLen(3))
	tests := []struct {
		name   string
		levels []ratelimit.Level
		want   error // nil: any
		text   string
	}{
		{"no levels", nil, nil, "at least one Level"},
		{"one limiter twice", []ratelimit.Level{level(user, "ada"), level(total, "all"), level(user, "ada")}, ratelimit.ErrPolicy, "two levels"},
		{"one namespace twice", []ratelimit.Level{level(user, "ada"), level(other, "ada")}, ratelimit.ErrPolicy, "two levels"},
		{"empty id", []ratelimit.Level{level(user, "ada"), level(total, "")}, ratelimit.ErrBadID, "empty"},
		{"long id", []ratelimit.Level{level(user, "ada"), level(total, "four")}, ratelimit.ErrBadID, "longer than 3 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ratelimit.AcquireAll(t.Context(), tt.levels...)
			if err == nil || got != nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, %v; want an error about %q", got, err, tt.text)
			}
			for _, l := range []*ratelimit.Limiter{user, other, total} {
				if s := l.Stats(); s.Active != 0 || s.Requests[ratelimit.Admitted] != 0 {
					t.Errorf("%s: %d active, %d admitted; want none", l.Namespace(), s.Active, s.Requests[ratelimit.Admitted])
				}
			}
		})
	}
	if n := user.Stats().Requests[ratelimit.Failed] + other.Stats().Requests[ratelimit.Failed] + total.Stats().Requests[ratelimit.Failed]; n != 4 {
		t.Errorf("%d rejections were counted, want one for each that has levels", n)
	}
	// Different ids of one limiter are two places, and so is one id in two namespaces.
	both, err := ratelimit.AcquireAll(t.Context(), level(user, "ada"), level(user, "eve"), level(total, "ada"))
	if err != nil {
		t.Fatal(err)
	}
	if err := both.Unlock(); err != nil {
		t.Fatal(err)
	}
}

// Each level applies its policy: a dry run never rejects, and a database that
// is away admits the request only where all levels without a lock allow it.
func TestAcquireAllPolicies(t *testing.T) {
	away := failing(sqllock.ErrUnavailable)
	open, dry := ratelimit.WithFailOpen(), ratelimit.WithDryRun()
	free, held, together := sqllock.NewMemory(), failing(sqllock.ErrHeld), newEachAway()
	type one struct {
		locks sqllock.Locker
		id    string
		opts  []ratelimit.Option
		want  ratelimit.Result // ""; nothing is counted
	}
	opts := func(o ...ratelimit.Option) []ratelimit.Option { return o }
	tests := []struct {
		name   string
		levels []one
		err    error
	}{
		{"dry run full", []one{{held, "a", opts(dry), ratelimit.DryRun}, {free, "a", nil, ratelimit.Admitted}}, nil},
		{"dry run full, the other too", []one{{held, "a", opts(dry), ""}, {held, "a", nil, ratelimit.Busy}}, ratelimit.ErrBusy},
		{"dry run free", []one{{free, "a", opts(dry), ratelimit.Admitted}, {free, "a", nil, ratelimit.Admitted}}, nil},
		{"dry run with a bad id", []one{{held, "", opts(dry), ratelimit.DryRun}, {free, "a", nil, ratelimit.Admitted}}, nil},
		{"dry run away", []one{{away, "a", opts(dry), ratelimit.DryRun}, {free, "a", nil, ratelimit.Admitted}}, nil},
		{"away and open", []one{{free, "a", nil, ratelimit.Admitted}, {away, "a", opts(open), ratelimit.FailedOpen}}, nil},
		{"away, and one of two is open", []one{{away, "a", opts(open), ""}, {away, "a", nil, ratelimit.Failed}}, sqllock.ErrUnavailable},
		{"all are open", []one{{away, "a", opts(open), ratelimit.FailedOpen}, {away, "a", opts(open), ratelimit.FailedOpen}}, nil},
		{"away in one call, and one of two is open", []one{{together, "a", opts(open), ""}, {together, "a", nil, ratelimit.Failed}}, sqllock.ErrUnavailable},
		{"away in one call, all are open", []one{{together, "a", opts(open), ratelimit.FailedOpen}, {together, "a", opts(open), ratelimit.FailedOpen}}, nil},
		{"open, but full behind", []one{{away, "a", opts(open), ""}, {held, "a", nil, ratelimit.Busy}}, ratelimit.ErrBusy},
		{"capacity does not fail open", []one{{free, "a", nil, ""}, {failing(sqllock.ErrCapacity), "a", opts(open), ratelimit.Failed}}, sqllock.ErrCapacity},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var levels []ratelimit.Level
			journals := make([]journal, len(tt.levels))
			for i, l := range tt.levels {
				ns := sqllock.Namespace("level" + string(rune('0'+i)))
				limiter := ratelimit.OneAtATime(l.locks, ns, append(l.opts, ratelimit.WithObserver(journals[i].observe))...)
				levels = append(levels, level(limiter, l.id))
			}
			locks, err := ratelimit.AcquireAll(t.Context(), levels...)
			if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Fatalf("got %v, want %v", err, tt.err)
			}
			for i, l := range tt.levels {
				got, want := journals[i].results(), []ratelimit.Result(nil)
				if l.want != "" {
					want = append(want, l.want)
				}
				if !slices.Equal(got, want) {
					t.Errorf("level %d: events %q, want %q", i, got, want)
				}
				if err == nil && (locks[i] != nil) != (l.want == ratelimit.Admitted) {
					t.Errorf("level %d: lock %v, want one only where it is admitted", i, locks[i])
				}
			}
			_ = locks.Unlock()
			for i := range levels {
				journals[i].agree(t, levels[i].Limiter.Stats())
				lock := must(t, ratelimit.OneAtATime(free, levels[i].Limiter.Namespace()), "a") // nothing is left behind
				unlock(t, lock)
			}
		})
	}
}

// eachAway is a Locker that finds the database away when it is asked for several
// groups.
type eachAway struct {
	*sqllock.Memory
	*inside.Groups
}

func newEachAway() eachAway {
	groups := inside.GroupsBy(func(context.Context, [][]sqllock.Key) (sqllock.Locks, error) { return nil, sqllock.ErrUnavailable })
	return eachAway{sqllock.NewMemory(), &groups}
}

// A request may come back to a level for which it has waited before. Its waits
// for that level last as long as the level allows in all, and not each of them.
func TestAcquireAllWaitsInAll(t *testing.T) {
	for name, lockers := range stackLockers() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var users journal
				perUser := ratelimit.OneAtATime(lockers[0], "user", ratelimit.WithWait(10*time.Second, 4), ratelimit.WithObserver(users.observe))
				total := ratelimit.OneAtATime(lockers[1], "total", ratelimit.WithWait(time.Minute, 4))
				user, all := must(t, perUser, "ada"), must(t, total, "all")
				next := stacked(t.Context(), level(perUser, "ada"), level(total, "all"))
				if perUser.Stats().Queued != 1 {
					t.Fatal("the request does not wait for the first level")
				}
				time.Sleep(6 * time.Second)
				unlock(t, user)
				time.Sleep(time.Second) // it waits for the other level, and holds nothing, so the first one is free
				must(t, perUser, "ada")
				unlock(t, all)
				time.Sleep(time.Second)
				if perUser.Stats().Queued != 1 {
					t.Fatal("the request has not come back to the first level")
				}
				got := <-next
				var busy *ratelimit.BusyError
				if !errors.As(got.err, &busy) || busy.Namespace != "user" {
					t.Errorf("got %v, want the first level to be full", got.err)
				}
				if waited := users.last(t, ratelimit.WaitTimeout).Waited; waited != 10*time.Second {
					t.Errorf("it has waited %v for the first level in all, want 10s", waited)
				}
			})
		})
	}
}
