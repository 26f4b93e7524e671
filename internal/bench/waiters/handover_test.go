package waiters

import (
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestHandOvers(t *testing.T) {
	took := handOvers([][]hold{
		{{Key: 1, Asked: 0, Granted: 10, Released: 100}, {Key: 1, Asked: 205, Granted: 300, Released: 400}, {Key: 2, Asked: 1, Granted: 2, Released: 3}},
		{{Key: 1, Asked: 50, Granted: 107, Released: 200}, {Key: 1, Asked: 350, Granted: 409, Released: 500}},
		{{Key: 1, Asked: 450, Granted: 460, Released: 490}, {Key: 2, Asked: 9, Granted: 10, Released: 11}},
	})
	// The grants at 107 and 409, and the one at 460, whose key two had at once.
	if n, most := took.TotalCount(), took.Max(); n != 3 || most != 9 {
		t.Errorf("%d hand-overs of at most %d ns, want 3 of at most 9", n, most)
	}
}

func TestRunApart(t *testing.T) {
	for _, how := range []string{Session, Unwatched} {
		t.Run(how, func(t *testing.T) {
			c := config(how, pgtest.Database(t), 300*time.Millisecond)
			c.Apart, c.Hold = true, time.Millisecond
			o := runUntil(t, c, nil, func(o *Outcome) bool { return o.HandOvers.TotalCount() > 0 })
			if o.Errors != 0 || o.HandOvers.Min() <= 1 {
				t.Errorf("%d errors (%s); the shortest of %d hand-overs took %d ns", o.Errors, o.First, o.HandOvers.TotalCount(), o.HandOvers.Min())
			}
		})
	}
}
