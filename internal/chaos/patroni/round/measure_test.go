//go:build linux

package round

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/network"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// ms is a moment of the histories below, in milliseconds.
func ms(n int) history.Moment { return history.Moment(n) * history.Moment(time.Millisecond) }

// Kinds of faults by what they may cost.
const (
	keeps = 1 // a switchover
	loses = 4 // a leader that is cut off
)

func grant(process int, at int) history.Event {
	return history.Event{Try: &history.Try{Process: process, Result: history.OK, End: ms(at)}}
}

func TestMeasure(t *testing.T) {
	all := []Outcome{
		{Row: keeps, Begin: ms(1000), Settled: ms(5000)},
		{Row: loses, Begin: ms(6000), Settled: ms(9000)},
	}
	events := []history.Event{
		{Hold: &history.Hold{Lock: 1, From: ms(900), Told: ms(1200)}},
		{Hold: &history.Hold{Lock: 2, From: ms(900)}}, // the last line counts
		{Hold: &history.Hold{Lock: 2, From: ms(900), Told: ms(1100)}},
		{Hold: &history.Hold{Lock: 3, From: ms(1001), Told: ms(1300)}}, // not held when the fault began
		{Hold: &history.Hold{Lock: 4, From: ms(5900)}},                 // not lost
		{Hold: &history.Hold{Lock: 5, From: ms(10), Told: ms(20)}},     // before all faults
	}
	for at := 0; at < 12000; at += 100 {
		if at <= 1000 || at >= 4000 {
			events = append(events, grant(1, at))
		}
		if at <= 8000 || at >= 8600 {
			events = append(events, grant(2, at))
		} else {
			events = append(events, history.Event{Try: &history.Try{Process: 2, Result: history.Unavailable, End: ms(at)}})
		}
	}
	measure(all, events)
	want := []Outcome{
		{
			Row: keeps, Begin: ms(1000), Settled: ms(5000), Lost: 3, Spared: 1,
			Told: []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}, Served: []time.Duration{3 * time.Second},
		},
		{Row: loses, Begin: ms(6000), Settled: ms(9000), Spared: 1, Served: []time.Duration{2600 * time.Millisecond}},
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("got  %+v\nwant %+v", all, want)
	}
}

func TestServed(t *testing.T) {
	tests := []struct {
		name    string
		grants  []int
		refused []int
		want    int // 0: not interrupted
	}{
		{"the longest pause, after some grants by the old primary", []int{-50, 700, 1400, 8000, 8600, 30000}, nil, 8000},
		{"a silence of seconds", []int{300, 1000, 9900}, nil, 9900},
		{"other processes hold all keys", []int{400, 2300, 4200, 6100, 8000, 9900}, nil, 0},
		{"the database was unavailable before and after a pause", []int{400, 1100, 1200, 2000, 3900, 5800, 7700, 9600}, []int{300, 1150}, 0},
		{"the database was unavailable", []int{400, 2300, 3000, 4800, 6700, 8600}, []int{2600}, 3000},
		{"the same, too short", []int{400, 2300, 2700, 4600, 6500, 8400}, []int{2600}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Outcome{Begin: ms(0), Settled: ms(10000)}
			o.served(moments(tt.grants), moments(tt.refused))
			if tt.want == 0 && o.Spared != 1 || tt.want != 0 && !slices.Equal(o.Served, []time.Duration{time.Duration(ms(tt.want))}) {
				t.Errorf("served again after %v, spared %d; want %v ms", o.Served, o.Spared, tt.want)
			}
		})
	}
}

func moments(milliseconds []int) (all []history.Moment) {
	for _, n := range milliseconds {
		all = append(all, ms(n))
	}
	return all
}

func TestMissing(t *testing.T) {
	write := func(number int64, at int, result history.Result) history.Event {
		return history.Event{Write: &history.Write{Number: number, Begin: ms(at - 10), End: ms(at), Result: result}}
	}
	// The old primary goes on until 7500, after the fault of 6000 has begun.
	// In the switchover of 13000 nodes b and c accept writes at once.
	w := windowsOf([]cluster.Writable{
		found("a", "", 0, 7500), {Node: "b", Before: ms(6950), From: ms(7000), To: ms(13200), Gone: ms(13250)},
		{Node: "c", Before: ms(13100), From: ms(13150), To: ms(20000)},
	})
	long := write(9, 6500, history.OK)
	long.Write.Process = 2 // has lib/pq
	long.Write.Begin = long.Write.End - history.Moment(worker.WriteTimeout)
	late := write(9, 8900, history.OK)
	late.Write.Begin = ms(7400)
	other := write(9, 6500, history.OK)
	other.Write.Process, other.Write.Begin = 1, long.Write.Begin
	tests := []struct {
		name        string
		event       history.Event
		synchronous bool
		missing     int
		cancelled   int
		violations  int
	}{
		{"stored", write(1, 500, history.OK), false, 0, 0, 0},
		{"not acknowledged", write(9, 6500, history.Failed), false, 0, 0, 0},
		{"lost on the side that was cut off", write(9, 6500, history.OK), false, 1, 0, 0},
		{"lost by a node that has just stepped down", write(9, 7550, history.OK), false, 1, 0, 0},
		{"requested when it had stepped down", write(9, 7570, history.OK), false, 0, 0, 1},
		{"lost on the side that was cut off, with an answer after the cut", late, false, 1, 0, 0},
		{"lost on the new primary alone", write(9, 8500, history.OK), false, 0, 0, 1},
		{"lost when the cluster was whole again", write(9, 9500, history.OK), false, 0, 0, 1},
		{"lost to the fault that came next", write(9, 5500, history.OK), false, 1, 0, 0},
		{"lost long before it", write(9, 3900, history.OK), false, 0, 0, 1},
		{"lost to a switchover", write(9, 1500, history.OK), false, 0, 0, 1},
		{"lost to two primaries in a switchover", write(9, 13100, history.OK), false, -1, 0, 0},
		{"lost before any fault", write(9, 100, history.OK), false, 0, 0, 1},
		{"lost with synchronous replication", write(9, 6500, history.OK), true, 0, 0, 1},
		{"its context ended, with synchronous replication", long, true, 0, 1, 0},
		{"the same, with pgx", other, true, 0, 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all := []Outcome{{Row: keeps, Begin: ms(1000), Settled: ms(3000)}, {Row: loses, Begin: ms(6000), Settled: ms(9000)}, {Row: keeps, Begin: ms(13000), Settled: ms(15000)}}
			before := *tt.event.Write
			without, lost := missing(all, []history.Event{tt.event}, []check.Stored{{Number: 1}}, tt.synchronous, w)
			if got := all[1].Missing - all[2].Missing; got != tt.missing || all[0].Missing != 0 || len(lost) != tt.violations || all[1].Cancelled != tt.cancelled {
				t.Errorf("missing %d, cancelled %d, lost %v; want %d, %d and %d", got, all[1].Cancelled, lost, tt.missing, tt.cancelled, tt.violations)
			}
			if *tt.event.Write != before {
				t.Error("the history itself was changed")
			}
			if found := without[0].Write.Result != before.Result; found != (tt.missing != 0 || tt.violations+tt.cancelled > 0) {
				t.Errorf("the write is %s afterwards", without[0].Write.Result)
			}
		})
	}
}

// found is a time that the observer saw, with a look every 50 ms.
func found(node, client string, from, to int) cluster.Writable {
	return cluster.Writable{Node: node, Client: client, Before: ms(from - 50), From: ms(from), To: ms(to), Gone: ms(to + 50)}
}

// slow is the same with looks that took 200 ms.
func slow(node, client string, from, to int) cluster.Writable {
	return cluster.Writable{Node: node, Client: client, Before: ms(from - 400), From: ms(from), To: ms(to - 200), Gone: ms(to + 200)}
}

// An error is no violation, unless the end of the time is what it comes from.
func TestExpect(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name       string
		looks      []error // nil: it is not so
		violations int
		want       error
	}{
		{"never", []error{nil, nil}, 1, nil},
		{"never, and the last look is cut short", []error{nil, context.DeadlineExceeded}, 1, nil},
		{"never, after an error", []error{broken, nil}, 1, nil},
		{"an error at last", []error{nil, broken}, 0, broken},
		{"the only look is cut short", []error{context.DeadlineExceeded}, 0, fleet.ErrTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, looks := &run{result: &Result{}}, tt.looks
			err := r.expectIn(t.Context(), 200*time.Millisecond, "something", func(ctx context.Context) (bool, error) {
				look := looks[0]
				if len(looks) > 1 {
					looks = looks[1:]
				}
				if errors.Is(look, context.DeadlineExceeded) {
					<-ctx.Done()
				}
				return false, look
			})
			if len(r.result.Violations) != tt.violations || !errors.Is(err, tt.want) || tt.want == nil && err != nil {
				t.Errorf("%s: %v, %v", tt.name, err, r.result.Violations)
			}
		})
	}
	r := &run{result: &Result{}}
	if err := r.expectIn(t.Context(), time.Minute, "something", func(context.Context) (bool, error) { return true, nil }); err != nil || len(r.result.Violations) > 0 {
		t.Errorf("%v, %v", err, r.result.Violations)
	}
}

// Each overlap is counted by what excused it.
func TestOverlaps(t *testing.T) {
	w := windowsOf([]cluster.Writable{
		found("a", "", 100, 2000), found("a", sessionName(1), 100, 2000), found("a", sessionName(3), 100, 2000),
		found("b", "", 1500, 9000), found("b", sessionName(2), 1500, 9000),
	})
	all := []Outcome{{Row: loses, Begin: ms(1000)}, {Row: keeps, Begin: ms(5000)}}
	hold := func(process int, lock int64, from, valid int) []history.Event {
		return []history.Event{
			{Try: &history.Try{Process: process, Key: 1, Call: lock, Lock: lock, Begin: ms(from), End: ms(from), Result: history.OK}},
			{Hold: &history.Hold{Process: process, Key: 1, Lock: lock, From: ms(from), Valid: ms(valid), UnlockBegin: ms(valid), Ended: ms(valid), Unlock: history.OK}},
		}
	}
	events := slices.Concat(
		hold(1, 11, 1000, 1700), hold(2, 12, 1600, 1650), // on two primaries
		hold(1, 13, 1800, 2040), hold(3, 14, 2030, 2035), // as a server ends, with two primaries
		hold(1, 15, 6000, 6400), hold(2, 16, 6300, 6500), // on one
	)
	overlaps(all, check.Sweep(events, check.Facts{Excuse: w.excuse}), w)
	want := []Outcome{
		{Row: loses, Begin: ms(1000), Excused: 1, News: 1, Longest: 50 * time.Millisecond, Two: []time.Duration{500 * time.Millisecond}},
		{Row: keeps, Begin: ms(5000), Overlaps: 1, Longest: 100 * time.Millisecond},
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("got  %+v\nwant %+v", all, want)
	}
}

// Processes on the given hosts reach a node that is cut off from the others.
func TestIsolate(t *testing.T) {
	r := &run{clients: []network.Host{{Name: "proxied"}, {Name: "direct"}}}
	n := &cluster.Node{Host: network.Host{Name: "node1"}}
	r.isolate(n)()
	r.isolate(n, r.clients[0])()
	var got []string
	for _, i := range r.isolated {
		got = append(got, fmt.Sprint(i.Node, i.Processes))
		if i.From == 0 || i.To < i.From {
			t.Errorf("%+v", i)
		}
	}
	if want := []string{"node1[1 2 3 4]", "node1[3 4]"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The numbers of the kinds are in results on disk and in documents.
func TestKinds(t *testing.T) {
	for i, k := range Kinds {
		if k.Number != i+1 || k.Name == "" || k.inject == nil || kindOf(k.Number).Name != k.Name {
			t.Errorf("kind %d: %+v", i+1, k)
		}
	}
}
