package demo

import (
	"testing"
	"time"
)

func TestOverlaps(t *testing.T) {
	run := func(user string, instance, begin, end int) export {
		at := func(s int) time.Time { return time.Unix(int64(s), 0) }
		return export{instance, user, at(begin), at(end)}
	}
	tests := []struct {
		name              string
		exports           []export
		overlaps, changes int
	}{
		{"none", nil, 0, 0},
		{"one after the other", []export{run("alice", 1, 0, 2), run("alice", 2, 2, 3)}, 0, 1},
		{"in another order", []export{run("alice", 2, 2, 3), run("alice", 1, 0, 2)}, 0, 1},
		{"of two users", []export{run("alice", 1, 0, 2), run("bob", 2, 1, 3)}, 0, 0},
		{"at once", []export{run("alice", 1, 0, 2), run("alice", 2, 1, 3)}, 1, 1},
		{"at once on one instance", []export{run("alice", 1, 0, 2), run("alice", 1, 1, 3)}, 1, 0},
		{"a long one around two", []export{run("alice", 1, 0, 9), run("alice", 2, 1, 2), run("alice", 2, 3, 4)}, 2, 1},
		{"with another user's between", []export{run("alice", 1, 0, 9), run("bob", 1, 1, 2), run("alice", 2, 3, 4)}, 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := len(overlaps(tt.exports)); got != tt.overlaps {
				t.Errorf("%d overlaps, want %d", got, tt.overlaps)
			}
			if got := changes(tt.exports); got != tt.changes {
				t.Errorf("%d changes, want %d", got, tt.changes)
			}
		})
	}
}
