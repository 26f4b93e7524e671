package simulation

import (
	"strings"
	"testing"
	"time"
)

// TestRejectedInARow runs a harmless plan in which the server is to reject many
// statements in a row. No call may fail for it: see burstLength.
func TestRejectedInARow(t *testing.T) {
	var rejected []statementFault
	for range 15 {
		rejected = append(rejected, statementFault{Request: 40 * time.Millisecond, Run: 40 * time.Millisecond, End: lockTableFull})
	}
	for _, key := range []int{0, 2} { // to request the second, a connection first checks its secret
		p := plan{
			Clients: 2, PerConn: 1000, Latency: 10 * time.Microsecond,
			Steps: []step{
				{0, statementFaults{0, rejected}},
				{0, call{Op: opLock, Keys: []int{key}, Timeout: 4 * time.Second}},
				{5 * time.Millisecond, call{Op: opTry, Keys: []int{1}}},
				{5 * time.Millisecond, call{Op: opDo, Keys: []int{3}, Timeout: 4 * time.Second}},
				{400 * time.Millisecond, call{Op: opTry, Keys: []int{3}}},
				{time.Second, call{Op: opTry, Keys: []int{1}}},
			},
		}
		if wrongs := p.run(t, true, make(map[string]int)); len(wrongs) > 0 {
			t.Errorf("key %d: %s", key, strings.Join(wrongs, "\n"))
		}
	}
}

// TestUnlockAfterARejectedRelease runs a plan in which the server rejects a
// statement that gives two keys back, and is slow. The second Unlock must not
// wait for longer because its release is sent again.
func TestUnlockAfterARejectedRelease(t *testing.T) {
	p := plan{
		Clients: 1, PerConn: 1000, Latency: time.Millisecond,
		Steps: []step{
			{0, call{Op: opTry, Keys: []int{0}, Hold: 60 * time.Millisecond}},
			{0, call{Op: opTry, Keys: []int{1}, Hold: 60 * time.Millisecond}},
			{30 * time.Millisecond, statementFaults{0, []statementFault{
				{Request: 400 * time.Millisecond}, // both calls of Unlock come meanwhile
				{Run: 300 * time.Millisecond, End: failsHalfWay},
				{Run: 100 * time.Millisecond}, // which keys are held
				{Run: 700 * time.Millisecond},
			}}},
			{0, call{Op: opTry, Keys: []int{3}}},
			{3 * time.Second, call{Op: opTry, Keys: []int{3}}},
		},
	}
	if wrongs := p.run(t, false, make(map[string]int)); len(wrongs) > 0 {
		t.Error(strings.Join(wrongs, "\n"))
	}
}
