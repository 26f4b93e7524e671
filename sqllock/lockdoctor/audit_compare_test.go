package lockdoctor

import (
	"maps"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// One look finds what differs before, on the server and after. What is under way at
// one of these moments is no difference.
func TestCompare(t *testing.T) {
	t.Parallel()
	key, pair := sqllock.ID(-5), sqllock.Pair(-1, 7)
	connection := func(held, shared, pending []sqllock.Key) []sqllock.Connection {
		return []sqllock.Connection{{PID: 9, Held: held, Shared: shared, Pending: pending}}
	}
	holds := func(key sqllock.Key, shared bool) map[int64]map[serverLock]bool {
		return map[int64]map[serverLock]bool{9: {{key, shared}: true}}
	}
	nothing := map[int64]map[serverLock]bool{9: {}}
	none, keys := connection(nil, nil, nil), []sqllock.Key{key}
	of := func(kind kind, key sqllock.Key) map[discrepancy]bool {
		return map[discrepancy]bool{{kind, 9, key}: true}
	}
	for name, tt := range map[string]struct {
		before []sqllock.Connection
		seen   map[int64]map[serverLock]bool
		after  []sqllock.Connection
		want   map[discrepancy]bool
	}{
		"agree":              {connection(keys, nil, nil), holds(key, false), connection(keys, nil, nil), nil},
		"readers agree":      {connection(nil, keys, nil), holds(key, true), connection(nil, keys, nil), nil},
		"not on the server":  {connection(keys, nil, nil), nothing, connection(keys, nil, nil), of(missing, key)},
		"in the wrong mode":  {connection(keys, nil, nil), holds(key, true), connection(keys, nil, nil), of(missing, key)},
		"released meanwhile": {connection(keys, nil, nil), nothing, none, nil},
		"acquired meanwhile": {none, holds(key, false), connection(keys, nil, nil), nil},
		"requested":          {connection(nil, nil, keys), holds(key, false), none, nil},
		"queued for release": {none, holds(key, false), connection(nil, nil, keys), nil},
		"of no caller":       {none, holds(key, false), none, of(orphan, key)},
		"a secret too many":  {none, holds(pair, true), none, of(orphan, sqllock.Key{})},
		"a secret":           {none, holds(pair, true), []sqllock.Connection{{PID: 9, SecretChecks: 1}}, nil},
		"a pair":             {none, holds(pair, false), none, of(orphan, pair)},
		"no process":         {none, nil, none, of(gone, sqllock.Key{})},
		"begun meanwhile":    {nil, holds(key, false), connection(keys, nil, nil), nil},
		"ended meanwhile":    {connection(keys, nil, nil), nil, nil, nil},
		"of a pooler":        {[]sqllock.Connection{{Held: keys}}, nil, []sqllock.Connection{{Held: keys}}, nil},
	} {
		if got := compare(tt.before, tt.seen, tt.after); !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
