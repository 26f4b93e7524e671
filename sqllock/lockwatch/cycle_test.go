package lockwatch_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// The functions below make the parts of a Snapshot. Key n is sqllock.ID(n). The
// number of a Session is the PID of its server process.

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// held returns a lock of a session that writes no heartbeats.
func held(pid int, key int64) lockwatch.Holder {
	return lockwatch.Holder{Key: sqllock.ID(key), Process: lockwatch.Process{PID: pid}}
}

// registered returns a lock of a Session that writes heartbeats.
func registered(session int, key int64) lockwatch.Holder {
	h := held(session, key)
	h.Registration = &lockwatch.Registration{Session: int64(session), Acquired: noon.Add(-time.Second), Heartbeat: noon, Expires: noon.Add(time.Second)}
	return h
}

func acquired(at time.Time, h lockwatch.Holder) lockwatch.Holder {
	h.Registration.Acquired = at
	return h
}

func shared(h lockwatch.Holder) lockwatch.Holder {
	h.Shared = true
	return h
}

func waits(pid int, key int64, blockedBy ...int) lockwatch.Waiter {
	return lockwatch.Waiter{Key: sqllock.ID(key), Process: lockwatch.Process{PID: pid}, BlockedBy: blockedBy}
}

// polls returns a caller of session that holds one key and waits for another. With
// holding 0 it is not known what the caller holds.
func polls(session int, holding, key int64) lockwatch.Waiter {
	p := &lockwatch.Poll{Session: int64(session), Callers: 1, Heartbeat: noon}
	if holding != 0 {
		held := sqllock.ID(holding)
		p.Held = &held
	}
	return lockwatch.Waiter{Key: sqllock.ID(key), Poll: p}
}

func blocked(pid int, by ...int) lockwatch.Blocked {
	return lockwatch.Blocked{Process: lockwatch.Process{PID: pid}, BlockedBy: by}
}

type (
	holders = []lockwatch.Holder
	waiters = []lockwatch.Waiter
)

func TestCycles(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		holders []lockwatch.Holder
		waiters []lockwatch.Waiter
		blocked []lockwatch.Blocked
		want    []string
	}{
		{name: "no waiter", holders: holders{held(1, 10), registered(5, 50)}},
		{
			name: "a queue", holders: holders{held(1, 10)},
			waiters: waiters{waits(2, 10, 1), waits(3, 10, 1, 2), polls(5, 0, 10)},
		},
		{
			name: "two backends", holders: holders{held(1, 10), held(2, 20)},
			waiters: waiters{waits(1, 20, 2), waits(2, 10, 1)},
			want:    []string{"process 1 waits for key 20 -> process 2 waits for key 10 (the server ends it)"},
		},
		{
			name: "three backends", holders: holders{held(1, 10), held(2, 20), held(3, 30)},
			waiters: waiters{waits(3, 20, 2), waits(1, 30, 3), waits(2, 10, 1)},
			want:    []string{"process 1 waits for key 30 -> process 3 waits for key 20 -> process 2 waits for key 10 (the server ends it)"},
		},
		{
			name: "through a row", holders: holders{held(1, 10)}, waiters: waiters{waits(2, 10, 1)}, blocked: []lockwatch.Blocked{blocked(1, 2)},
			want: []string{"process 1 waits for a row, a table or the like -> process 2 waits for key 10 (the server ends it)"},
		},
		{
			name: "waiters behind a cycle are not in it", holders: holders{held(1, 10), held(2, 20), held(3, 30)},
			waiters: waiters{waits(1, 20, 2), waits(2, 10, 1), waits(3, 10, 1, 2), waits(4, 30, 3)},
			want:    []string{"process 1 waits for key 20 -> process 2 waits for key 10 (the server ends it)"},
		},
		{
			name: "two cycles that share a process", holders: holders{held(1, 10), shared(held(2, 20)), shared(held(3, 20))},
			waiters: waiters{waits(1, 20, 2, 3), waits(2, 10, 1), waits(3, 10, 1)},
			want: []string{
				"process 1 waits for key 20 -> process 2 waits for key 10 (the server ends it)",
				"process 1 waits for key 20 -> process 3 waits for key 10 (the server ends it)",
			},
		},
		{
			name: "a backend and a polling caller", holders: holders{registered(5, 50), held(1, 10)},
			waiters: waiters{waits(1, 50, 5), polls(5, 50, 10)},
			want:    []string{"process 1 waits for key 50 -> the holder of key 50 on process 5 waits for key 10"},
		},
		{
			name:    "a backend, a row and a polling caller",
			holders: holders{registered(5, 50), held(1, 10)}, waiters: waiters{waits(2, 50, 5), polls(5, 50, 10)}, blocked: []lockwatch.Blocked{blocked(1, 2)},
			want: []string{"process 1 waits for a row, a table or the like -> process 2 waits for key 50 -> the holder of key 50 on process 5 waits for key 10"},
		},
		{
			name: "callers of two Sessions", holders: holders{registered(5, 50), registered(6, 60)},
			waiters: waiters{polls(5, 50, 60), polls(6, 60, 50)},
			want:    []string{"the holder of key 50 on process 5 waits for key 60 -> the holder of key 60 on process 6 waits for key 50"},
		},
		{
			name: "two callers of one Session", holders: holders{registered(5, 50), registered(5, 51)},
			waiters: waiters{polls(5, 50, 51), polls(5, 51, 50)},
			want:    []string{"the holder of key 50 on process 5 waits for key 51 -> the holder of key 51 on process 5 waits for key 50"},
		},
		{
			name: "a caller that waits for itself", holders: holders{registered(5, 50)}, waiters: waiters{polls(5, 50, 50)},
			want: []string{"the holder of key 50 on process 5 waits for key 50"},
		},
		{
			// The key that process 1 waits for is held by another caller than the one
			// that waits. That caller will release it.
			name: "no cycle: two callers of one Session", holders: holders{registered(5, 50), registered(5, 51), held(1, 10)},
			waiters: waiters{waits(1, 50, 5), polls(5, 51, 10)},
		},
		{
			name: "no cycle: callers of two Sessions hold nothing", holders: holders{registered(5, 50), registered(6, 60)},
			waiters: waiters{polls(5, 0, 60), polls(6, 0, 50), polls(5, 0, 50)},
		},
		{
			name: "it is not known what the caller holds", holders: holders{registered(5, 50), held(1, 10)},
			waiters: waiters{waits(1, 50, 5), polls(5, 0, 10)},
		},
		{
			name: "another caller has acquired the held lock since", holders: holders{acquired(noon.Add(time.Millisecond), registered(5, 50)), held(1, 10)},
			waiters: waiters{waits(1, 50, 5), polls(5, 50, 10)},
		},
		{
			name: "the caller holds a lock of another Session of its process", holders: holders{registered(6, 60), held(1, 10)},
			waiters: waiters{waits(1, 60, 6), polls(5, 60, 10)},
			want:    []string{"process 1 waits for key 60 -> the holder of key 60 on process 6 waits for key 10"},
		},
		{
			name: "a shared lock of another Session may be another caller's", holders: holders{shared(registered(6, 60)), held(1, 10)},
			waiters: waiters{waits(1, 60, 6), polls(5, 60, 10)},
		},
		{
			name: "a lock that is not registered may be another caller's", holders: holders{registered(5, 50), held(1, 10)},
			waiters: waiters{polls(5, 10, 50), polls(5, 50, 10)},
		},
		{
			name: "a lease is another lock", holders: holders{registered(5, 50), {Key: sqllock.ID(10), Lease: &lockwatch.Lease{Session: 7}}},
			waiters: waiters{polls(5, 10, 50), polls(5, 50, 10)},
		},
		{
			name: "a Session that cannot release", holders: holders{registered(5, 50)}, waiters: waiters{waits(1, 50, 5)}, blocked: []lockwatch.Blocked{blocked(5, 1)},
			want: []string{"process 1 waits for key 50 -> the holder of key 50 on process 5 waits for that process -> process 5 waits for a row, a table or the like (the server ends it)"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &lockwatch.Snapshot{At: noon, Holders: tt.holders, Waiters: tt.waiters, Blocked: tt.blocked}
			if got := cycleTexts(s); !slices.Equal(got, tt.want) {
				t.Errorf("cycles:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			slices.Reverse(s.Holders)
			slices.Reverse(s.Waiters)
			if got := cycleTexts(s); !slices.Equal(got, tt.want) {
				t.Errorf("in another order the cycles are:\n%s", strings.Join(got, "\n"))
			}
		})
	}
}

func cycleTexts(s *lockwatch.Snapshot) (texts []string) {
	for _, c := range s.Cycles() {
		texts = append(texts, c.String())
	}
	return texts
}

// A cycle of many processes is built once: the work grows with its length, and
// not with the square.
func TestCycleOfMany(t *testing.T) {
	const n = 400
	s := &lockwatch.Snapshot{}
	for i := range n {
		next := (i + 1) % n
		s.Holders = append(s.Holders, held(i+1, int64(i)))
		s.Waiters = append(s.Waiters, waits(i+1, int64(next), next+1))
	}
	if cycles := s.Cycles(); len(cycles) != 1 || len(cycles[0].Waits) != n {
		t.Fatalf("%d cycles, want one of %d waits", len(cycles), n)
	}
	if allocations := testing.AllocsPerRun(1, func() { s.Cycles() }); allocations > 100*n {
		t.Errorf("%.0f allocations for %d waits", allocations, n)
	}
}
