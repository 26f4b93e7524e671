package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// Each option has its limits. What depends on the lease is checked once the lease
// is known. A message names a value that is right.
func TestOptionsAreInRange(t *testing.T) {
	t.Parallel()
	known := func(lease, heartbeat time.Duration) func(*Options) {
		return func(o *Options) { o.Lease, o.LeaseSet, o.Heartbeat = lease, true, heartbeat }
	}
	beats := func(heartbeat time.Duration) func(*Options) {
		return func(o *Options) { o.Heartbeat, o.BeatSet = heartbeat, true }
	}
	idle := func(d time.Duration) func(*Options) { return func(o *Options) { o.IdleClose = d } }
	for name, tt := range map[string]struct {
		change func(*Options)
		says   string // "": the options are right
	}{
		"nothing is known":                {func(*Options) {}, ""},
		"the shortest lease":              {known(MinLease, 1), ""},
		"a lease that is too short":       {known(MinLease-1, 1), "too short"},
		"a dialect's that is too short":   {func(o *Options) { o.Dialect, o.Lease = postgres.Dialect{}, MinLease-1 }, "too short"},
		"the longest lease":               {known(MaxLease, 1), ""},
		"a lease that is too long":        {known(MaxLease+1, 1), "too long"},
		"no heartbeat of a known lease":   {known(MinLease, 0), "must be positive"},
		"no heartbeat of another":         {beats(0), "must be positive"},
		"a heartbeat of another":          {beats(time.Hour), ""},
		"the slowest heartbeat":           {known(3*time.Second, 799*time.Millisecond-1), ""}, // 3 s are good for 2.397 s
		"a heartbeat that is too slow":    {known(3*time.Second, 799*time.Millisecond), "use 798ms or less"},
		"the shortest idle time":          {idle(minIdleClose), ""},
		"an idle time that is too short":  {idle(minIdleClose - 1), "WithIdleClose"},
		"an idle time below 0":            {idle(-1), "WithIdleClose"},
		"one lock":                        {func(o *Options) { o.MaxHeld = 1 }, ""},
		"no lock":                         {func(o *Options) { o.MaxHeld = 0 }, "WithMaxHeld"},
		"a number of connections below 0": {func(o *Options) { o.MaxConns = -1 }, "WithMaxConns"},
		"a registry of what is not known": {func(o *Options) { o.Registry = true }, ""},
		"a registry on PostgreSQL":        {func(o *Options) { o.Dialect, o.Registry = postgres.Dialect{}, true; o.Suit() }, ""},
		"a registry on MySQL":             {func(o *Options) { o.Dialect, o.Registry = mysql.Dialect{}, true; o.Suit() }, "WithRegistry"},
		"no registry on MySQL":            {func(o *Options) { o.Dialect = mysql.Dialect{}; o.Suit() }, ""},
	} {
		o := Defaults()
		tt.change(&o)
		if err := o.Validate(); (err == nil) != (tt.says == "") || !strings.Contains(fmt.Sprint(err), tt.says) {
			t.Errorf("%s: %v, want an error that says %q", name, err, tt.says)
		}
	}
}

// A Session may have one connection for each thousand locks, or as many as the
// caller has set.
func TestMaxConns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ held, set, want int }{{1, 0, 1}, {1000, 0, 1}, {1001, 0, 2}, {4000, 0, 4}, {4000, 1, 1}} {
		o := Options{MaxHeld: tt.held, MaxConns: tt.set}
		if got := o.maxConns(); got != tt.want {
			t.Errorf("%d connections for %d locks, with %d set, want %d", got, tt.held, tt.set, tt.want)
		}
	}
}
