package lockwatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A glance is a look, and how many findings begin and end with it.
type glance struct {
	shows      *Snapshot
	news, over int
}

// glances makes the looks, and returns how many findings are open after them.
func glances(t *testing.T, name string, d *Diagnosis, looks ...glance) (open int) {
	t.Helper()
	for i, s := range looks {
		if news, over := d.Look(s.shows); len(news) != s.news || len(over) != s.over {
			t.Errorf("%s: look %d: %d new and %d over, want %d and %d", name, i+1, len(news), len(over), s.news, s.over)
		}
	}
	return len(d.Open())
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// A cycle is reported when two looks in a row show it.
func TestCycleIsToldAtTheSecondLook(t *testing.T) {
	t.Parallel()
	calm := &Snapshot{}
	cycle := &Snapshot{Holders: []Holder{{Key: sqllock.ID(1), Process: Process{PID: 1}}, {Key: sqllock.ID(2), Process: Process{PID: 2}}},
		Waiters: []Waiter{
			{Key: sqllock.ID(2), Process: Process{PID: 1}, BlockedBy: []int{2}},
			{Key: sqllock.ID(1), Process: Process{PID: 2}, BlockedBy: []int{1}},
		}}
	d := NewDiagnosis()
	if n := glances(t, "one", d, glance{cycle, 0, 0}, glance{calm, 0, 0}, glance{cycle, 0, 0}, glance{cycle, 1, 0}, glance{cycle, 0, 0}); n != 1 {
		t.Errorf("%d are open, want 1", n)
	}
	if n := glances(t, "over", d, glance{calm, 0, 1}, glance{cycle, 0, 0}, glance{cycle, 1, 0}, glance{calm, 0, 1}); n != 0 {
		t.Errorf("%d are open, want none", n)
	}
}

// A heartbeat is late after half of the lease, or after a given age.
func TestLateAge(t *testing.T) {
	t.Parallel()
	at := noon
	for _, tt := range []struct {
		name            string
		late, age, rest time.Duration // WithLate, of the heartbeat, and the lease after it
		want            int
	}{
		{"young", 0, 4999 * time.Millisecond, 10 * time.Second, 0},
		{"half the lease", 0, 5 * time.Second, 10 * time.Second, 1},
		{"expired", 0, time.Hour, 10 * time.Second, 1},
		{"younger than a given age", time.Minute, 59 * time.Second, 10 * time.Second, 0},
		{"of a given age", time.Minute, time.Minute, time.Hour, 1},
		{"the server's clock was set back", 0, -time.Hour, 10 * time.Second, 0},
	} {
		beat := at.Add(-tt.age)
		s := &Snapshot{At: at, Holders: []Holder{
			{Key: sqllock.ID(1), Process: Process{State: "idle", StateSince: beat}, Registration: &Registration{Heartbeat: beat, Expires: beat.Add(tt.rest)}},
			{Key: sqllock.ID(2)}, // without a registration
		}}
		d := NewDiagnosis()
		if tt.late > 0 {
			d = NewDiagnosis(WithLate(tt.late))
		}
		glances(t, tt.name, d, glance{s, tt.want, 0})
	}
}

// A lock that is not in the registry counts from the first of the looks in a row
// that show it.
func TestHeldLongCountsFromTheFirstLook(t *testing.T) {
	t.Parallel()
	at := noon
	lock := Holder{Key: sqllock.ID(1), Process: Process{PID: 1, Start: at}}
	again := lock
	again.Process.Start = at.Add(time.Microsecond) // another process with its pid
	check := Holder{Key: sqllock.Pair(1, 1), SecretCheck: true, Shared: true}
	d := NewDiagnosis(WithLongHeld(2 * time.Second))
	for i, tt := range []struct {
		holders    []Holder
		news, over int
	}{
		{[]Holder{lock, check}, 0, 0}, {[]Holder{lock, check}, 0, 0}, {[]Holder{lock, check}, 1, 0}, {[]Holder{lock}, 0, 0}, {nil, 0, 1},
		{[]Holder{lock}, 0, 0}, {[]Holder{lock}, 0, 0}, {[]Holder{again}, 0, 0}, {[]Holder{again}, 0, 0}, {[]Holder{again}, 1, 0},
	} {
		glances(t, fmt.Sprint("at ", i), d, glance{&Snapshot{At: at.Add(time.Duration(i) * time.Second), Holders: tt.holders}, tt.news, tt.over})
	}
}

// If the process of a late heartbeat has worked since, the registry is at fault.
func TestLateIsWhoIsSilentToo(t *testing.T) {
	t.Parallel()
	at := noon
	for _, tt := range []struct {
		name  string
		state string
		since time.Duration // before the look; 0: hidden
		want  FindingKind
	}{
		{"reads the rest of a statement", "active ClientRead", 5 * time.Second, LateHeartbeat},
		{"has just begun to read", "active ClientRead", 4999 * time.Millisecond, RegistryNotWritten},
		{"at work on the disk", "active DataFileRead", time.Hour, RegistryNotWritten},
		{"idle", "idle", 5 * time.Second, LateHeartbeat},
		{"idle in a transaction", "idle in transaction", 5 * time.Second, LateHeartbeat},
		{"idle a moment ago", "idle", 4999 * time.Millisecond, RegistryNotWritten},
		{"at work", "active", time.Hour, RegistryNotWritten},
		{"hidden", "", 0, RegistryNotWritten},
		{"not tracked", "disabled", 0, RegistryNotWritten},
	} {
		p := Process{PID: 1, State: tt.state}
		if event, ok := strings.CutPrefix(tt.state, "active "); ok {
			p.State, p.WaitEvent = "active", event
		}
		if tt.since > 0 {
			p.StateSince = at.Add(-tt.since)
		}
		beat := at.Add(-time.Minute)
		s := &Snapshot{At: at, Holders: []Holder{{Key: sqllock.ID(1), Process: p, Registration: &Registration{Heartbeat: beat, Expires: beat.Add(10 * time.Second)}}}}
		if news, _ := NewDiagnosis().Look(s); len(news) != 1 || news[0].Kind != tt.want {
			t.Errorf("%s: %+v, want %s", tt.name, news, tt.want)
		}
	}
}

// A cycle is reported once each polling caller in it has had another heartbeat.
// The same heartbeats again do not count.
func TestCycleNeedsNewHeartbeats(t *testing.T) {
	t.Parallel()
	at := noon
	cycle := func(first, second int) *Snapshot { // which heartbeats the two have had
		beat := func(n int) time.Time { return at.Add(time.Duration(n) * time.Second) }
		lock := func(n int, k int64) Holder {
			return Holder{Key: sqllock.ID(k), Process: Process{PID: n}, Registration: &Registration{Session: int64(n), Acquired: at, Heartbeat: at, Expires: at.Add(time.Hour)}}
		}
		poll := func(n int, holds, wants int64, heartbeat int) Waiter {
			held := sqllock.ID(holds)
			return Waiter{Key: sqllock.ID(wants), Poll: &Poll{Session: int64(n), Callers: 1, Held: &held, Heartbeat: beat(heartbeat)}}
		}
		return &Snapshot{At: at, Holders: []Holder{lock(1, 1), lock(2, 2)}, Waiters: []Waiter{poll(1, 1, 2, first), poll(2, 2, 1, second)}}
	}
	glances(t, "cycle", NewDiagnosis(), glance{cycle(1, 1), 0, 0}, glance{cycle(1, 1), 0, 0}, glance{cycle(2, 1), 0, 0},
		glance{cycle(3, 1), 0, 0}, glance{cycle(3, 2), 1, 0}, glance{cycle(3, 2), 0, 0})
}

// A lease is late when its session has not renewed it for half of its length, or
// for a given age. Its length is the longest time to its end that was seen.
func TestLateLease(t *testing.T) {
	t.Parallel()
	at := noon
	held := func(left time.Duration) *Snapshot {
		return &Snapshot{At: at, Holders: []Holder{{Key: sqllock.ID(1), Lease: &Lease{Session: 7, Acquired: at.Add(-time.Hour), Expires: at.Add(left)}}}}
	}
	expired := &Snapshot{At: at, Expired: held(-time.Second).Holders}
	for _, tt := range []struct {
		name  string
		late  time.Duration
		steps []glance
	}{
		{"half of the lease", 0, []glance{{held(8 * time.Second), 0, 0}, {held(10 * time.Second), 0, 0}, {held(5001 * time.Millisecond), 0, 0}, {held(5 * time.Second), 1, 0},
			{held(time.Second), 0, 0}, {expired, 0, 0}, {&Snapshot{At: at}, 0, 1}}},
		{"renewed in time", 0, []glance{{held(time.Second), 0, 0}, {held(10 * time.Second), 0, 0}, {held(4 * time.Second), 1, 0}, {held(9 * time.Second), 0, 1}}},
		{"a given age", 2 * time.Second, []glance{{held(10 * time.Second), 0, 0}, {held(8001 * time.Millisecond), 0, 0}, {held(8 * time.Second), 1, 0}}},
		{"expired before it was seen", 0, []glance{{expired, 1, 0}, {expired, 0, 0}}},
	} {
		glances(t, tt.name, &Diagnosis{late: tt.late}, tt.steps...)
	}
}
