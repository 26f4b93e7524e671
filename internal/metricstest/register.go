package metricstest

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// What is removed is not shown any more, and its name is free.
func remove(t *testing.T, start func(*testing.T) Subject) {
	s := start(t)
	session := dbtest.Session(t, "pgx", pgtest.Database(t))
	limiter := ratelimit.OneAtATime(session, "export")
	campaign := election.New(session, sqllock.ID(1))
	lockertest.Eventually(t, "the Session knows its lock table", func() bool { return session.Stats().TableSize > 0 })
	nothing := len(read(t, s))
	for range 2 { // the second time the names are in use again
		removes := []func(){s.Limiter(limiter), s.Limiter(limiter), s.Session("main", session), s.Campaign("nightly", campaign)}
		all := len(read(t, s))
		removes[0]()
		removes[0]()
		if n := len(read(t, s)); n != all {
			t.Errorf("%d series are left of %d, and the limiter is still registered once", n, all)
		}
		for _, remove := range removes[1:] {
			before := len(read(t, s))
			remove()
			after := len(read(t, s))
			remove()
			if again := len(read(t, s)); after >= before || again != after {
				t.Errorf("%d series, %d after the removal, and %d after another one", before, after, again)
			}
		}
		if n := len(read(t, s)); n != nothing {
			t.Errorf("%d series are left, want %d", n, nothing)
		}
	}
}

// Misuse panics.
func misuse(t *testing.T, start func(*testing.T) Subject) {
	s := start(t)
	session := dbtest.Session(t, "pgx", pgtest.Database(t))
	campaign := election.New(session, sqllock.ID(1))
	s.Session("main", session)
	s.Campaign("nightly", campaign)
	for what, misuse := range map[string]func(){
		"a nil limiter":              func() { s.Limiter(nil) },
		"a nil Session":              func() { s.Session("other", nil) },
		"a nil Campaign":             func() { s.Campaign("other", nil) },
		"a Session without a name":   func() { s.Session("", session) },
		"a Campaign without a name":  func() { s.Campaign("", campaign) },
		"a name that is not UTF-8":   func() { s.Session("a\xff", session) },
		"a second Session of a name": func() { s.Session("main", session) },
		"a second Campaign":          func() { s.Campaign("nightly", campaign) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s does not panic", what)
				}
			}()
			misuse()
		}()
	}
}
