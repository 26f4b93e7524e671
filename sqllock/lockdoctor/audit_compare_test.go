package lockdoctor

import (
	"maps"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// One look finds what differs before, on the server and after. What is under way at
// one of these moments is no difference.
func TestCompare(t *testing.T) {
	t.Parallel()
	start := time.UnixMicro(1_000_000)
	key, pair := sqllock.ID(-5), sqllock.Pair(-1, 7)
	connection := func(held, shared, pending []sqllock.Key) []sqllock.Connection {
		return []sqllock.Connection{{PID: 9, Start: start, Held: held, Shared: shared, Pending: pending}}
	}
	holds := func(locks ...serverLock) map[int64]serverProcess {
		return map[int64]serverProcess{9: {PID: 9, Start: start.UnixMicro(), Here: true, Locks: locks}}
	}
	none, keys := connection(nil, nil, nil), []sqllock.Key{key}
	for name, tt := range map[string]struct {
		before []sqllock.Connection
		seen   map[int64]serverProcess
		after  []sqllock.Connection
		want   []discrepancy
	}{
		"agree":                     {connection(keys, nil, nil), holds(lockOf(key, false)), connection(keys, nil, nil), nil},
		"readers agree":             {connection(nil, keys, nil), holds(lockOf(key, true)), connection(nil, keys, nil), nil},
		"not on the server":         {connection(keys, nil, nil), holds(), connection(keys, nil, nil), []discrepancy{{missing, 9, key}}},
		"in the wrong mode":         {connection(keys, nil, nil), holds(lockOf(key, true)), connection(keys, nil, nil), []discrepancy{{missing, 9, key}}},
		"released meanwhile":        {connection(keys, nil, nil), holds(), none, nil},
		"acquired meanwhile":        {none, holds(lockOf(key, false)), connection(keys, nil, nil), nil},
		"requested":                 {connection(nil, nil, keys), holds(lockOf(key, false)), none, nil},
		"queued for release":        {none, holds(lockOf(key, false)), connection(nil, nil, keys), nil},
		"of no caller":              {none, holds(lockOf(key, false)), none, []discrepancy{{orphan, 9, key}}},
		"perhaps of a secret":       {none, holds(lockOf(pair, true)), none, []discrepancy{{secret, 9, pair}}},
		"a pair of no caller":       {none, holds(lockOf(pair, false)), none, []discrepancy{{orphan, 9, pair}}},
		"no process":                {none, nil, none, []discrepancy{{kind: gone, pid: 9}}},
		"another process":           {none, map[int64]serverProcess{9: {PID: 9, Start: 2, Here: true}}, none, []discrepancy{{kind: gone, pid: 9}}},
		"a start that is hidden":    {none, map[int64]serverProcess{9: {PID: 9, Here: true}}, none, nil},
		"another database":          {none, map[int64]serverProcess{9: {PID: 9, Start: start.UnixMicro()}}, none, []discrepancy{{kind: away, pid: 9}}},
		"begun meanwhile":           {nil, holds(lockOf(key, false)), connection(keys, nil, nil), nil},
		"ended meanwhile":           {connection(keys, nil, nil), nil, nil, nil},
		"connected again meanwhile": {connection(keys, nil, nil), nil, []sqllock.Connection{{PID: 9, Start: start.Add(1)}}, nil},
		"of a pooler":               {[]sqllock.Connection{{Held: keys}}, nil, []sqllock.Connection{{Held: keys}}, nil},
	} {
		want := map[discrepancy]bool{}
		for _, d := range tt.want {
			want[d] = true
		}
		if got := compare(tt.before, tt.seen, tt.after); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// As many shared locks as there are key secrets are no finding, and one more is.
func TestSuspects(t *testing.T) {
	t.Parallel()
	found := map[discrepancy]bool{{secret, 9, sqllock.Pair(1, 1)}: true, {secret, 9, sqllock.Pair(1, 2)}: true}
	for checks, want := range map[int]int{0: 2, 1: 2, 2: 0, 3: 0} {
		if got := suspects(found, []sqllock.Connection{{PID: 9, SecretChecks: checks}, {PID: 8, SecretChecks: 5}}); len(got) != want {
			t.Errorf("%d secrets: %v, want %d", checks, got, want)
		}
	}
}
