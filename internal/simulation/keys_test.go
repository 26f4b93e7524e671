package simulation

import (
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

const namespace = sqllock.Namespace("simulation")

var (
	secretTexts = [2]string{"secret", "other"}

	// secrets make two different keys of one name.
	secrets = [2]sqllock.KeyedNamespace{namespace.Keyed([]byte(secretTexts[0])), namespace.Keyed([]byte(secretTexts[1]))}

	// contendedKeys are the keys for which the callers contend.
	contendedKeys = []sqllock.Key{sqllock.ID(1), sqllock.ID(2), secrets[0].Key("three"), sqllock.Pair(1, 1)}
)

// key returns the nth contended key as a client makes it. If the plan has two
// secrets, the last client makes another key of the same name.
func (w *world) key(client, n int) sqllock.Key {
	if n == 2 && w.plan.TwoSecrets && client%len(w.clients) == len(w.clients)-1 {
		return secrets[1].Key("three")
	}
	return contendedKeys[n]
}

// ownKeys returns keys that no other call wants.
func (w *world) ownKeys() (keys []sqllock.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range 12 {
		w.numbered++
		keys = append(keys, sqllock.ID(1000+w.numbered))
	}
	return keys
}

// dialectKey returns k as the database sees it.
func dialectKey(k sqllock.Key) dialect.Key {
	if _, _, ok := k.Pair(); ok {
		return dialect.Key{Space: dialect.TwoInts, ID: k.Int64()}
	}
	return dialect.Key{Space: dialect.Bigint, ID: k.Int64()}
}
