//go:build linux

package round

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
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
		t.Run(tt.name, func(t *testing.T) {
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
				t.Errorf("%v, %v", err, r.result.Violations)
			}
		})
	}
	r := &run{result: &Result{}}
	if err := r.expectIn(t.Context(), time.Minute, "something", func(context.Context) (bool, error) { return true, nil }); err != nil || len(r.result.Violations) > 0 {
		t.Errorf("%v, %v", err, r.result.Violations)
	}
}

func TestBlind(t *testing.T) {
	seen := []cluster.Writable{found("a", "", 100, 900), slow("b", "", 2000, 3000), {Node: "c", From: ms(5000), To: ms(9000)}}
	if got := windowsOf(seen).blind(); got != ms(400) {
		t.Errorf("blind for %v, want 400 ms", time.Duration(got))
	}
	seen = append(seen, cluster.Writable{Node: "b", Client: sessionName(1), Before: ms(2000), From: ms(2500), To: ms(3000)})
	if got := windowsOf(seen).blind(); got != ms(500) {
		t.Errorf("blind for %v with a session, want 500 ms", time.Duration(got))
	}
}

func TestTwoPrimaries(t *testing.T) {
	seen := []cluster.Writable{found("b", "", 900, 2000), found("a", "", 100, 1000), found("a", "", 2100, 3000), found("c", "", 3100, 4000)}
	if got, want := windowsOf(seen).split, []span{{ms(900), ms(1000)}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestExcuse(t *testing.T) {
	session := func(node string, process, from, to int) cluster.Writable {
		return found(node, sessionName(process), from, to)
	}
	// Nodes a and b accept writes at once, from 4000 to 5000. The server c ends its
	// sessions at 30000. HAProxy closes its connections to d at 65000. Processes 1
	// and 2 are cut off from e at 85000, and it ends at 89000.
	w := windowsOf([]cluster.Writable{
		found("a", "", 100, 5000), session("a", 1, 100, 5000), session("a", 5, 100, 4400), session("a", 6, 100, 4900),
		found("b", "", 4000, 9000), session("b", 2, 4000, 9000), session("b", 3, 4000, 9000), session("b", 5, 4400, 9000), session("b", 6, 4400, 9000),
		found("f", "", 4000, 9000), session("f", 7, 3000, 9000),
		found("c", "", 20000, 30000), session("c", 1, 20000, 30000), session("c", 2, 20000, 30000),
		session("d", 1, 60000, 65000), session("d", 2, 60000, 65010), session("d", 3, 60000, 70000),
		session("d", 1, 66000, 68000), session("d", 2, 66000, 70000), session("d", 3, 70100, 75000),
		found("e", "", 80000, 89000), session("e", 1, 80000, 87000), session("e", 2, 80000, 87010), session("e", 3, 80000, 89000), session("e", 15, 80000, 89000), session("e", 20, 80000, 89000),
		found("g", "", 89120, 99000), session("g", 4, 89120, 99000),
		// The looks at h and i take 200 ms. Process 8 is granted a lock on h, and moves
		// to i in the time of a look. Both accept writes meanwhile, for 40 ms.
		slow("h", "", 100000, 101000), slow("h", sessionName(8), 100000, 101000),
		slow("i", "", 101200, 105000), slow("i", sessionName(8), 101400, 105000), slow("i", sessionName(9), 101200, 105000),
		// Nothing ends the server j. Process 10 is cut off from it, and k is promoted.
		{Node: "j", Before: ms(110000), From: ms(110050), To: ms(119000)}, session("j", 10, 110050, 119000), session("j", 12, 110050, 119000),
		found("k", "", 115000, 125000), session("k", 11, 115000, 125000), session("j", 14, 110050, 119000),
		// Both accept writes. Process 17 gets no processor when n ends.
		found("n", "", 130000, 131000), session("n", 17, 130000, 131000),
		found("o", "", 130500, 135000), session("o", 16, 130500, 135000),
		// Both accept writes. A slow look sees a session of process 18 on p later than
		// its next one on q.
		found("p", "", 139000, 150000), session("p", 19, 139000, 150000),
		found("q", "", 139000, 150000), session("q", 18, 141550, 150000),
		{Node: "p", Client: sessionName(18), Before: ms(139990), From: ms(141900), To: ms(140000), Gone: ms(142050)},
		// Process 21 moves when r ends. Process 23 is cut off from r.
		found("r", "", 160000, 165000), session("r", 21, 160000, 165000), session("r", 23, 160000, 165000),
		found("s", "", 164000, 175000), session("s", 21, 165080, 175000), session("s", 22, 164000, 175000),
		found("t", "", 165110, 175000), session("t", 32, 165110, 175000),
		// The server on u is started again, and later v is promoted.
		found("u", "", 200000, 205000), session("u", 24, 200000, 205000), found("u", "", 205200, 220000),
		found("v", "", 206000, 215000), session("v", 25, 206000, 215000),
		// No process gets a processor until w ends.
		found("w", "", 230000, 235000), session("w", 26, 230000, 235000), found("x", "", 234000, 245000), session("x", 27, 234000, 245000),
		// Both accept writes. Processes 28 and 29 are cut off from y, for a long and a
		// short time. The session of 29 ends meanwhile. That of 31 ends before it is cut
		// off.
		{Node: "y", Before: ms(249950), From: ms(250000), To: ms(300000)}, session("y", 28, 250000, 300000), session("y", 29, 250000, 283000),
		session("y", 31, 250000, 270000), found("z", "", 268000, 300000), session("z", 30, 268000, 300000),
		// Process 1 has another session on d, which lives.
		session("d", 1, 65080, 65900),
		// Both accept writes. No process gets a processor when A ends.
		found("A", "", 310000, 315000), session("A", 34, 310000, 315000), found("B", "", 314050, 330000), session("B", 33, 314050, 330000),
		// The server on C is started again, and no process gets a processor meanwhile.
		found("C", "", 340000, 345000), session("C", 35, 340000, 345000), session("C", 36, 340000, 345000),
		{Node: "C", Before: ms(345050), From: ms(345985), To: ms(360000)}, {Node: "C", Client: sessionName(36), Before: ms(345050), From: ms(345985), To: ms(360000)},
		// Both accept writes. Process 37 is cut off from D, and its session ends as the
		// cut does.
		found("D", "", 370000, 400000), found("E", "", 370000, 400000), session("E", 38, 370000, 400000),
		session("D", 37, 370000, 384980),
		// Process 42 has made two attempts to connect to p at once.
		session("p", 42, 139000, 150000), session("p", 42, 139500, 139600),
		// Process 43 has given up a session of p, which goes on.
		session("p", 43, 139000, 150000), session("p", 43, 144900, 146500),
		// The session of process 1 on G ends alone, and a losing attempt of process 2.
		session("G", 1, 430000, 440000), session("G", 2, 430000, 460000), session("G", 2, 434000, 440010), session("G", 3, 430000, 460000),
		session("p", 46, 139000, 141000), session("p", 46, 140000, 150000), session("p", 47, 139000, 150000), session("q", 47, 140000, 145000),
		// Process 44 is cut off from H for a short time, in which H ends.
		found("H", "", 450000, 455000), session("H", 44, 450000, 455000), session("H", 45, 450000, 455000),
		// Process 39 is cut off from F, whose server ends and is started again.
		found("F", "", 401000, 410000), session("F", 39, 401000, 410000), session("F", 40, 401000, 410000),
		{Node: "F", Before: ms(410060), From: ms(410110), To: ms(430000)}, {Node: "F", Client: sessionName(40), Before: ms(410060), From: ms(410110), To: ms(430000)},
	}, span{ms(315055), ms(315100)}, span{ms(315200), ms(315400)}, span{ms(345060), ms(346000)}, span{ms(234700), ms(235040)}, span{ms(25000), ms(25100)}, span{ms(30300), ms(30400)}, span{ms(90000), ms(90200)}, span{ms(131020), ms(131380)})
	w.isolated = []isolation{{"e", []int{1, 2, 15, 20}, span{ms(85000), ms(95000)}}, {"j", []int{10, 11}, span{ms(112000), ms(121000)}},
		{"r", []int{23}, span{ms(162000), ms(180000)}}, {"y", []int{28}, span{ms(252000), ms(269000)}}, {"y", []int{29}, span{ms(280000), ms(285000)}},
		{"y", []int{31}, span{ms(275000), ms(295000)}}, {"y", []int{28}, span{ms(272000), ms(290000)}}}
	w.isolated = append(w.isolated, isolation{"D", []int{37}, span{ms(380000), ms(385000)}}, isolation{"F", []int{39}, span{ms(409000), ms(430000)}},
		isolation{"H", []int{44}, span{ms(452000), ms(455100)}})
	w.lease = ms(10000)
	lock := func(process, from, valid, told int) check.Grant {
		return check.Grant{Requested: ms(from), Granted: ms(from), Hold: history.Hold{Process: process, From: ms(from), Valid: ms(valid), Told: ms(told)}}
	}
	late := func(g check.Grant, requested int) check.Grant {
		g.Requested = ms(requested)
		return g
	}
	tests := []struct {
		name string
		a, b check.Grant
		want bool
	}{
		{"granted by the second of two primaries", lock(1, 3000, 4600, 5000), lock(2, 4500, 4700, 0), true},
		{"the same, and told long after the first one had ended", lock(1, 3000, 4600, 5400), lock(2, 4500, 4700, 0), false},
		{"the same, in the other order", lock(2, 4500, 4700, 0), lock(1, 3000, 4600, 5000), true},
		{"both granted by one of two primaries", lock(3, 4300, 4600, 5000), lock(2, 4500, 4700, 0), false},
		{"the same, by a process that has just moved there", lock(5, 4450, 4600, 5000), lock(2, 4500, 4700, 0), false},
		{"the same, and its session on the other one lives on", lock(6, 4450, 4600, 5000), lock(2, 4500, 4700, 0), false},
		{"granted before the process moved", lock(5, 4350, 4600, 4700), lock(2, 4500, 4700, 0), true},
		{"the same, and told long after its session had ended", lock(5, 4350, 4600, 5000), lock(2, 4500, 4700, 0), false},
		{"of one process, which moved", lock(5, 4300, 4600, 5000), lock(5, 4500, 4700, 0), false},
		{"of one process that moved, and was told late", lock(5, 4300, 4400, 4600), lock(5, 4500, 4700, 0), false},
		{"of a process that was seen nowhere", lock(1, 3000, 4600, 5000), lock(4, 4500, 4700, 0), false},
		{"granted before there were two", lock(7, 3100, 3900, 0), lock(1, 2900, 3900, 0), false},
		{"granted long after there were two, and told soon", lock(1, 4500, 6050, 6100), lock(2, 6000, 7000, 0), false},
		{"two others accept writes", lock(2, 6000, 7000, 0), lock(3, 6500, 7000, 0), false},
		{"the server ends sessions, and the news is under way", lock(1, 29000, 30010, 30050), lock(2, 30020, 30030, 30040), true},
		{"told soon after the grant", lock(1, 29000, 30240, 30440), lock(2, 30200, 30230, 30240), true},
		{"the same, on the side of a process elsewhere", lock(3, 29000, 30010, 30050), lock(2, 30020, 30030, 30040), false},
		{"the news came late", lock(1, 29000, 30010, 30410), lock(2, 30020, 30030, 30040), false},
		{"the news came late, but for a time without a processor", lock(1, 29000, 30010, 30390), lock(2, 30020, 30030, 30040), true},
		{"still taken for valid", lock(1, 29000, 30410, 0), lock(2, 30020, 30030, 30040), false},
		{"HAProxy closes its connections to a node", lock(1, 64000, 65010, 65050), lock(3, 65020, 65030, 0), true},
		{"the same, and the lock was granted later", late(lock(1, 65100, 65130, 0), 65090), lock(3, 65120, 65140, 0), false},
		{"the same, and the other lock goes on", lock(1, 64000, 65010, 65050), lock(3, 65020, 66000, 0), true},
		{"the same, and a process elsewhere loses its lock", lock(3, 64000, 65010, 65050), lock(1, 65020, 65030, 0), false},
		{"the same, and the news came late", lock(1, 64000, 65010, 65310), lock(3, 65020, 65030, 0), false},
		{"one process alone loses its connection to HAProxy", lock(1, 67000, 68010, 68050), lock(3, 68020, 68030, 0), false},
		{"a process without HAProxy loses its connection", lock(3, 69000, 70010, 70050), lock(1, 70020, 70030, 0), false},
		{"the leases of those that are cut off end on the server", lock(1, 84000, 87150, 87100), lock(3, 87005, 87300, 0), false},
		{"a holder is cut off when its server ends", lock(15, 84000, 93000, 93100), lock(3, 88950, 89030, 0), true},
		{"the same, and its session had ended long before", lock(1, 84000, 93000, 93100), lock(3, 88950, 89030, 0), false},
		{"the same, and the lease is over", lock(15, 84000, 93000, 93300), lock(3, 88950, 89030, 0), false},
		{"the same, and the holder is on the server's side", lock(3, 84000, 93000, 93100), lock(15, 88950, 89030, 0), false},
		{"the same, and another server grants the key", lock(15, 84000, 93000, 93100), lock(4, 89200, 89230, 0), false},
		{"a holder is cut off, and its server goes on", lock(15, 84000, 93000, 93100), lock(3, 87010, 87030, 0), false},
		{"the same, and the other process is cut off too", lock(20, 84000, 93000, 93100), lock(15, 88950, 89030, 0), false},
		{"before the server ends sessions", lock(1, 29000, 29710, 29800), lock(2, 29700, 29730, 0), false},
		{"after the server has ended sessions", lock(1, 29000, 30430, 30440), lock(2, 30420, 30440, 0), false},
		{"the same, but for a time without a processor", lock(1, 29000, 30400, 30410), lock(2, 30390, 30410, 0), true},
		{"two primaries between two looks", lock(8, 101010, 101060, 101070), lock(9, 101030, 101090, 0), true},
		{"a lease ends in time, with two primaries", lock(10, 111000, 120000, 120100), lock(11, 116000, 120000, 0), true},
		{"a lease ends too late, with two primaries", lock(10, 111000, 120000, 120300), lock(11, 116000, 120000, 0), false},
		{"the server goes on, and grants a lock again", lock(12, 111000, 119000, 119010), lock(14, 118950, 119000, 0), false},
		{"the holder on the server that ends was granted the lock later", lock(2, 4500, 7000, 0), lock(1, 4600, 5200, 5210), true},
		{"the same, and it is told too late", lock(2, 4500, 7000, 0), lock(1, 4600, 5400, 5410), false},
		{"granted in either order, and told too late", late(lock(1, 29990, 30000, 45000), 29980), late(lock(2, 29995, 30000, 30010), 29985), false},
		{"a grant is noted late for want of a processor", lock(16, 130970, 132000, 0), late(lock(17, 131400, 131400, 131420), 130940), true},
		{"requested after that time", lock(16, 130970, 132000, 0), late(lock(17, 131450, 131450, 131470), 131440), false},
		{"a slow look sees two sessions in the other order", lock(19, 141000, 142400, 0), lock(18, 142200, 142500, 0), true},
		{"a server that goes on has not ended", lock(10, 111000, 119000, 119010), lock(12, 118950, 119010, 0), false},
		{"noted in the other order than granted", late(lock(1, 65200, 65230, 65240), 64900), late(lock(3, 65100, 65240, 0), 65000), true},
		{"the same, but not requested in time", late(lock(1, 65200, 65230, 65240), 65150), late(lock(3, 65100, 65240, 0), 65000), false},
		{"requested as its session ended", late(lock(21, 165170, 165300, 0), 165070), late(lock(22, 165190, 165320, 0), 165090), true},
		{"requested after its session had ended", late(lock(21, 165170, 165300, 0), 165120), late(lock(22, 165190, 165320, 0), 165090), false},
		{"a holder is cut off, and there are two primaries", lock(23, 161000, 169900, 0), late(lock(22, 165170, 165320, 0), 165090), true},
		{"requested after the first primary had ended", lock(23, 161000, 169900, 0), late(lock(22, 165170, 165320, 0), 165120), false},
		{"granted by a server that was started again before there were two", lock(24, 203000, 206600, 0), lock(25, 206500, 209000, 0), false},
		{"granted by the next primary", lock(23, 161000, 169900, 0), late(lock(32, 165150, 165320, 0), 165090), false},
		{"granted when the cut had ended, with two primaries", lock(28, 270000, 275000, 0), lock(30, 271000, 275000, 0), true},
		{"a session has ended before the cut, and its holder goes on", lock(31, 268500, 280000, 0), lock(30, 269000, 280000, 0), false},
		{"the grant is noted too late, for no want of a processor", lock(26, 233000, 235100, 0), late(lock(27, 235600, 235700, 0), 234600), false},
		{"a cut has ended, and the lease has not", lock(28, 251000, 278000, 0), lock(30, 269100, 269500, 0), false},
		{"the same, in the next cut", lock(28, 251000, 279000, 0), lock(30, 273000, 273500, 0), false},
		{"a lease goes on during a short cut", lock(29, 279000, 287900, 0), lock(30, 284000, 288000, 0), true},
		{"the same, and it ends too late", lock(29, 279000, 288300, 0), lock(30, 284000, 288300, 0), false},
		{"a lease goes on, and the lock is granted again after the short cut", lock(29, 279000, 287900, 0), lock(30, 286000, 288000, 0), true},
		{"the same, and it ends too late", lock(29, 279000, 288300, 0), lock(30, 286000, 288300, 0), false},
		{"a session ended long ago, and there are two primaries now", lock(5, 4350, 4600, 5000), lock(2, 4760, 4950, 0), false},
		{"granted by a server that ended long ago, and was started again", late(lock(24, 205160, 206600, 0), 205090), lock(25, 206500, 209000, 0), false},
		{"requested late for want of a processor", lock(33, 314900, 315600, 0), late(lock(34, 315395, 315410, 315420), 315110), true},
		{"the same, and later", lock(33, 314900, 315600, 0), late(lock(34, 315395, 315410, 315420), 315170), false},
		{"requested when a processor was there again", lock(16, 130970, 132000, 0), late(lock(17, 131400, 131400, 131420), 131390), true},
		{"a short cut ends between two looks, one before and one after the end of the session", lock(37, 379000, 387900, 0), lock(38, 386000, 388000, 0), true},
		{"the later lock was granted by a server that has ended, or after a restart by the other side", lock(39, 405000, 416900, 0), late(lock(40, 410200, 415000, 0), 410095), false},
		{"another attempt to connect has lost", lock(42, 141000, 142400, 0), lock(18, 142200, 142500, 0), true},
		{"a session that was given up, and another one within it", lock(43, 145200, 147900, 0), lock(18, 145500, 147900, 0), false},
		{"a session ends soon, and the next one goes on", lock(46, 142000, 142400, 0), lock(18, 142200, 142500, 0), true},
		{"of two sessions one is on another node", lock(47, 141000, 144000, 0), lock(19, 142000, 143000, 0), true},
		{"a short cut ends, and the lock is granted again after it", lock(44, 451000, 457000, 0), lock(45, 455200, 455230, 455240), false},
		{"a losing attempt ends, and HAProxy closes nothing", lock(1, 439000, 440010, 440050), lock(3, 440020, 440030, 0), false},
		{"granted after its session had ended, and held on", lock(1, 29000, 30010, 30050), late(lock(2, 30200, 32000, 0), 30150), false},
		{"seen nowhere, and held on", lock(1, 29000, 30010, 30050), lock(4, 30020, 32000, 0), false},
		{"noted long after the server's end", lock(18, 149000, 150295, 150300), late(lock(19, 150290, 150295, 150300), 150090), true},
		{"the same, and told too late", lock(18, 149000, 150295, 150300), late(lock(19, 150290, 150540, 0), 150090), false},
		{"granted by the server before or after it was started again", lock(35, 344000, 345985, 346010), late(lock(36, 345990, 347000, 0), 345095), true},
		{"no server ended sessions", lock(1, 24000, 25010, 25050), lock(2, 25020, 25030, 0), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := w.excuse(tt.a, tt.b); got != tt.want {
				t.Errorf("excused: %t, want %t", got, tt.want)
			}
		})
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
	overlaps(all, check.Sweep(events, check.WithExcuse(w.excuse)), w)
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
