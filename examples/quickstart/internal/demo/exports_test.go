package demo

import (
	"testing"
	"time"
)

// The demonstration's verdict finds exports that overlap.
func TestOverlaps(t *testing.T) {
	run := func(user string, begin, end int64) export {
		return export{1, user, time.Unix(begin, 0), time.Unix(end, 0)}
	}
	for name, tt := range map[string]struct {
		exports []export
		want    int
	}{
		"one after the other":         {[]export{run("alice", 2, 3), run("alice", 0, 2)}, 0},
		"of two users":                {[]export{run("alice", 0, 2), run("bob", 1, 3)}, 0},
		"at once":                     {[]export{run("alice", 0, 2), run("alice", 1, 3)}, 1},
		"a long one around two":       {[]export{run("alice", 0, 9), run("alice", 1, 2), run("alice", 3, 4)}, 2},
		"with another user's between": {[]export{run("alice", 0, 9), run("bob", 1, 2), run("alice", 3, 4)}, 1},
	} {
		if got := len(overlaps(tt.exports)); got != tt.want {
			t.Errorf("%s: %d overlap, want %d", name, got, tt.want)
		}
	}
}
