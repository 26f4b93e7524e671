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

func TestTwoPrimaries(t *testing.T) {
	seen := []cluster.Sighting{found("b", "", 900, 2000), found("a", "", 100, 1000), found("a", "", 2100, 3000), found("c", "", 3100, 4000)}
	if got, want := newEvidence(seen, nil, nil, 0).split(), []span{{ms(900), ms(1000)}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestExcuse(t *testing.T) {
	session := func(node string, process, from, to int) cluster.Sighting {
		return found(node, sessionName(process), from, to)
	}
	// Nodes a and b accept writes at once, from 4000 to 5000. The server c ends its
	// sessions at 30000. HAProxy closes its connections to d at 65000. Processes 1
	// and 2 are cut off from e at 85000, and it ends at 89000.
	w := newEvidence([]cluster.Sighting{
		found("a", "", 100, 5000), session("a", 1, 100, 5000), session("a", 5, 100, 4400), session("a", 6, 100, 4900),
		found("b", "", 4000, 9000), session("b", 2, 4000, 9000), session("b", 3, 4000, 9000), session("b", 5, 4400, 9000), session("b", 6, 4400, 9000),
		found("f", "", 4000, 9000), session("f", 7, 3000, 9000),
		found("c", "", 20000, 30000), session("c", 1, 20000, 30000), session("c", 2, 20000, 30000),
		found("d", "", 60000, 76000),
		session("d", 1, 60000, 65000), session("d", 2, 60000, 65010), session("d", 3, 60000, 70000),
		session("d", 1, 66000, 68000), session("d", 2, 66000, 70000), session("d", 3, 70100, 75000),
		found("e", "", 80000, 89000), session("e", 1, 80000, 87000), session("e", 2, 80000, 87010), session("e", 3, 80000, 89000), session("e", 15, 80000, 89000), session("e", 20, 80000, 89000),
		found("g", "", 89120, 99000), session("g", 4, 89120, 99000),
		// Nothing ends the server j. Process 10 is cut off from it, and k is promoted.
		{Node: "j", Before: ms(110000), From: ms(110050), To: ms(119000)}, session("j", 10, 110050, 119000),
		found("k", "", 115000, 125000), session("k", 11, 115000, 125000),
		// Both accept writes. Process 17 gets no processor when n ends.
		found("n", "", 130000, 131000), session("n", 17, 130000, 131000),
		found("o", "", 130500, 135000), session("o", 16, 130500, 135000),
		// Process 21 moves when r ends. Process 23 is cut off from r.
		found("r", "", 160000, 165000), session("r", 21, 160000, 165000), session("r", 23, 160000, 165000),
		found("s", "", 164000, 175000), session("s", 21, 165080, 175000), session("s", 22, 164000, 175000),
		found("t", "", 165110, 175000), session("t", 32, 165110, 175000),
		// Both accept writes. Processes 28 and 29 are cut off from y, for a long and a
		// short time. The session of 29 ends meanwhile. That of 31 ends before it is cut
		// off.
		{Node: "y", Before: ms(249950), From: ms(250000), To: ms(300000)}, session("y", 28, 250000, 300000), session("y", 29, 250000, 283000),
		session("y", 31, 250000, 270000), found("z", "", 268000, 300000), session("z", 30, 268000, 300000),
		// Process 1 has another session on d, which lives.
		session("d", 1, 65080, 65900),
		// Process 48 is cut off from J when its session has ended.
		found("J", "", 500000, 510000), session("J", 48, 500000, 510000), session("J", 49, 500000, 510000),
		// Process 39 is cut off from F, whose server ends and is started again.
		found("F", "", 401000, 410000), session("F", 39, 401000, 410000), session("F", 40, 401000, 410000),
		{Node: "F", Before: ms(410060), From: ms(410110), To: ms(430000)}, {Node: "F", Client: sessionName(40), Before: ms(410060), From: ms(410110), To: ms(430000)},
	}, []span{{ms(30300), ms(30400)}, {ms(90000), ms(90200)}, {ms(131020), ms(131380)}}, []isolation{
		{"e", []int{1, 2, 15, 20}, span{ms(85000), ms(95000)}}, {"j", []int{10, 11}, span{ms(112000), ms(121000)}},
		{"r", []int{23}, span{ms(162000), ms(180000)}}, {"y", []int{28}, span{ms(252000), ms(269000)}}, {"y", []int{29}, span{ms(280000), ms(285000)}},
		{"y", []int{31}, span{ms(275000), ms(295000)}}, {"y", []int{28}, span{ms(272000), ms(290000)}},
		{"F", []int{39}, span{ms(409000), ms(430000)}}, {"J", []int{48}, span{ms(510150), ms(530000)}},
	}, 10*time.Second)
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
		{"a session too short to be seen, on a server that ends", lock(22, 164500, 165300, 0), late(lock(50, 165040, 165060, 0), 164990), true},
		{"the same, and it is held on", lock(22, 164500, 165300, 0), late(lock(50, 165040, 165400, 0), 164990), false},
		{"granted by the second of two primaries", lock(1, 3000, 4600, 5000), lock(2, 4500, 4700, 0), true},
		{"the same, and told long after the first one had ended", lock(1, 3000, 4600, 5400), lock(2, 4500, 4700, 0), false},
		{"the same, in the other order", lock(2, 4500, 4700, 0), lock(1, 3000, 4600, 5000), true},
		{"both granted by one of two primaries", lock(3, 4300, 4600, 5000), lock(2, 4500, 4700, 0), false},
		{"the same, by a process that has just moved there", lock(5, 4450, 4600, 5000), lock(2, 4500, 4700, 0), false},
		{"granted before the process moved", lock(5, 4350, 4600, 4700), lock(2, 4500, 4700, 0), true},
		{"the same, and told long after its session had ended", lock(5, 4350, 4600, 5000), lock(2, 4500, 4700, 0), false},
		{"of one process, which moved", lock(5, 4300, 4600, 5000), lock(5, 4500, 4700, 0), false},
		{"of one process that moved, and was told late", lock(5, 4300, 4400, 4600), lock(5, 4500, 4700, 0), false},
		{"of a process that was seen nowhere", lock(1, 3000, 4600, 5000), lock(4, 4500, 4700, 0), false},
		{"granted before there were two", lock(7, 3100, 3900, 0), lock(1, 2900, 3900, 0), false},
		{"granted long after there were two, and told soon", lock(1, 4500, 6050, 6100), lock(2, 6000, 7000, 0), false},
		{"two others accept writes", lock(2, 6000, 7000, 0), lock(3, 6500, 7000, 0), false},
		{"the server ends sessions, and the news is under way", lock(1, 29000, 30010, 30050), lock(2, 30020, 30030, 30040), true},
		{"the same, on the side of a process elsewhere", lock(3, 29000, 30010, 30050), lock(2, 30020, 30030, 30040), false},
		{"the news came late", lock(1, 29000, 30010, 30410), lock(2, 30020, 30030, 30040), false},
		{"the news came late, but for a time without a processor", lock(1, 29000, 30010, 30390), lock(2, 30020, 30030, 30040), true},
		{"still taken for valid", lock(1, 29000, 30410, 0), lock(2, 30020, 30030, 30040), false},
		{"HAProxy closes its connections to a node", lock(1, 64000, 65010, 65050), lock(3, 65020, 65030, 0), true},
		{"the same, and the other lock goes on", lock(1, 64000, 65010, 65050), lock(3, 65020, 66000, 0), true},
		{"the same, and a process elsewhere loses its lock", lock(3, 64000, 65010, 65050), lock(1, 65020, 65030, 0), false},
		{"the same, and the news came late", lock(1, 64000, 65010, 65310), lock(3, 65020, 65030, 0), false},
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
		{"a lease ends in time, with two primaries", lock(10, 111000, 120000, 120100), lock(11, 116000, 120000, 0), true},
		{"a lease ends too late, with two primaries", lock(10, 111000, 120000, 120300), lock(11, 116000, 120000, 0), false},
		{"the holder on the server that ends was granted the lock later", lock(2, 4500, 7000, 0), lock(1, 4600, 5200, 5210), true},
		{"the same, and it is told too late", lock(2, 4500, 7000, 0), lock(1, 4600, 5400, 5410), false},
		{"granted in either order, and told too late", late(lock(1, 29990, 30000, 45000), 29980), late(lock(2, 29995, 30000, 30010), 29985), false},
		{"a grant is noted late for want of a processor", lock(16, 130970, 132000, 0), late(lock(17, 131400, 131400, 131420), 130940), true},
		{"requested after that time", lock(16, 130970, 132000, 0), late(lock(17, 131450, 131450, 131470), 131440), false},
		{"noted in the other order than granted", late(lock(1, 65200, 65230, 65240), 64900), late(lock(3, 65100, 65240, 0), 65000), true},
		{"the same, but not requested in time", late(lock(1, 65200, 65230, 65240), 65150), late(lock(3, 65100, 65240, 0), 65000), false},
		{"requested as its session ended", late(lock(21, 165170, 165300, 0), 165070), late(lock(22, 165190, 165320, 0), 165090), true},
		{"requested after its session had ended", late(lock(21, 165170, 165300, 0), 165120), late(lock(22, 165190, 165320, 0), 165090), false},
		{"a holder is cut off, and there are two primaries", lock(23, 161000, 169900, 0), late(lock(22, 165170, 165320, 0), 165090), true},
		{"requested after the first primary had ended", lock(23, 161000, 169900, 0), late(lock(22, 165170, 165320, 0), 165120), false},
		{"granted by the next primary", lock(23, 161000, 169900, 0), late(lock(32, 165150, 165320, 0), 165090), false},
		{"granted when the cut had ended, with two primaries", lock(28, 270000, 275000, 0), lock(30, 271000, 275000, 0), true},
		{"a session has ended before the cut, and its holder goes on", lock(31, 268500, 280000, 0), lock(30, 269000, 280000, 0), false},
		{"a cut has ended, and the lease has not", lock(28, 251000, 278000, 0), lock(30, 269100, 269500, 0), false},
		{"the same, in the next cut", lock(28, 251000, 279000, 0), lock(30, 273000, 273500, 0), false},
		{"a lease goes on during a short cut", lock(29, 279000, 287900, 0), lock(30, 284000, 288000, 0), true},
		{"the same, and it ends too late", lock(29, 279000, 288300, 0), lock(30, 284000, 288300, 0), false},
		{"a lease goes on, and the lock is granted again after the short cut", lock(29, 279000, 287900, 0), lock(30, 286000, 288000, 0), true},
		{"the same, and it ends too late", lock(29, 279000, 288300, 0), lock(30, 286000, 288300, 0), false},
		{"a session ended long ago, and there are two primaries now", lock(5, 4350, 4600, 5000), lock(2, 4760, 4950, 0), false},
		{"requested when a processor was there again", lock(16, 130970, 132000, 0), late(lock(17, 131400, 131400, 131420), 131390), true},
		{"the later lock was granted by a server that has ended, or after a restart by the other side", lock(39, 405000, 416900, 0), late(lock(40, 410200, 415000, 0), 410095), false},
		{"a holder is cut off after its session has ended", lock(48, 505000, 515000, 0), late(lock(49, 510200, 510230, 510240), 510040), false},
		{"the same, and it knew in time", lock(48, 505000, 510440, 0), late(lock(49, 510200, 510230, 510240), 510040), true},
		{"granted after its session had ended, and held on", lock(1, 29000, 30010, 30050), late(lock(2, 30200, 32000, 0), 30150), false},
		{"seen nowhere, and held on", lock(1, 29000, 30010, 30050), lock(4, 30020, 32000, 0), false},
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
