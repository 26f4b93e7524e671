//go:build linux

package round

import (
	"reflect"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
)

// accepts is a time that the observer saw, with a look every 50 ms.
func accepts(node string, from, to int) cluster.Sighting {
	return cluster.Sighting{Node: node, Before: ms(from - 50), From: ms(from), To: ms(to), Gone: ms(to + 50)}
}

func TestTwoPrimaries(t *testing.T) {
	e := &evidence{Servers: []cluster.Sighting{accepts("b", 900, 2000), accepts("a", 100, 1000), accepts("a", 2100, 3000), accepts("c", 3100, 4000)}}
	if got, want := e.split(), []span{{ms(900), ms(1000)}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestExcuse(t *testing.T) {
	// In the switchover of 1000 the server a ends at 2000. The leader c is cut off at
	// 10000, and ends at 15000; d follows at 28000. At 50000 e and f accept writes at
	// once for a second; no process has a processor from 52100 to 52500.
	e := &evidence{
		Lease:   ms(10000),
		Faults:  []Outcome{{Row: keeps, Begin: ms(1000), Settled: ms(5000)}, {Row: loses, Begin: ms(10000), Settled: ms(40000)}, {Row: 8, Begin: ms(45000), Settled: ms(60000)}},
		Servers: []cluster.Sighting{accepts("a", 100, 2000), accepts("b", 2500, 9000), accepts("c", 9500, 15000), accepts("d", 28000, 44000), accepts("e", 45000, 52000), {Node: "f", Before: ms(50950), From: ms(51000), To: ms(70000)}},
		Starved: []span{{ms(52100), ms(52500)}},
	}
	lock := func(process, from, valid int) check.Grant {
		return check.Grant{Requested: ms(from), Granted: ms(from), Hold: history.Hold{Process: process, From: ms(from), Valid: ms(valid), Unlock: history.OK}}
	}
	told := func(g check.Grant, at int) check.Grant {
		g.Told = ms(at)
		return g
	}
	tests := []struct {
		name string
		a, b check.Grant
		want bool
	}{
		{"the news is under way", told(lock(1, 1500, 2030), 2060), lock(2, 2020, 2100), true},
		{"the same, in the other order", lock(2, 2020, 2100), told(lock(1, 1500, 2030), 2060), true},
		{"the news comes late", told(lock(1, 1500, 2030), 2280), lock(2, 2020, 2100), false},
		{"the holder releases the lock as if it were valid", lock(1, 1500, 2030), lock(2, 2020, 2100), false},
		{"the holder goes on", lock(1, 1500, 4000), lock(2, 2020, 2100), false},
		{"of one process", told(lock(1, 1500, 2030), 2060), lock(1, 2020, 2100), false},
		{"before any fault", told(lock(1, 500, 630), 660), lock(2, 620, 700), false},
		{"after the fault", told(lock(1, 6000, 6030), 6060), lock(2, 6020, 6100), false},
		{"cut off from a server that ends, which grants the key once more", told(lock(1, 9800, 18000), 18100), lock(2, 15020, 15040), true},
		{"the same, and the other holder goes on", told(lock(1, 9800, 18000), 18100), lock(2, 15020, 15400), false},
		{"the same, and the lease is over", told(lock(1, 9800, 18300), 18300), lock(2, 15020, 15040), false},
		{"cut off from a server that goes on", told(lock(1, 9800, 18000), 18100), lock(2, 12000, 12040), false},
		{"cut off, and the next primary grants the key", told(lock(1, 9800, 29000), 29000), lock(2, 28100, 30000), false},
		{"granted by two primaries", lock(1, 46000, 51900), lock(2, 51500, 53000), true},
		{"the same, and the old one has ended", lock(1, 46000, 52650), lock(2, 51500, 53000), true},
		{"the same, and its holder goes on", lock(1, 46000, 52750), lock(2, 51500, 53000), false},
		{"requested after the old one had ended", lock(1, 46000, 53000), lock(2, 52800, 53500), false},
		{"granted before there were two", lock(1, 46000, 50500), lock(2, 50200, 50800), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := e.excuse(tt.a, tt.b); got != tt.want {
				t.Errorf("excused: %t, want %t", got, tt.want)
			}
		})
	}
}

// The processes may sleep for longer than they should.
func TestStarved(t *testing.T) {
	e := &evidence{Starved: []span{{ms(100), ms(200)}, {ms(300), ms(400)}}}
	for m, want := range map[int]bool{0: true, 250: true, 350: true, 450: true, 451: false} {
		if got := e.soon(ms(0), ms(m)); got != want {
			t.Errorf("at %v: %t, want %t", time.Duration(ms(m)), got, want)
		}
	}
}
