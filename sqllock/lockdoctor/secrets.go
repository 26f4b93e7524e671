package lockdoctor

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"

	"github.com/latchkey-go/latchkey/sqllock"
)

// secrets finds out whether another Session uses a namespace with another
// secret. It asks as any Session does: by a request for a key.
func secrets(ctx context.Context, s *subject) Result {
	if len(s.namespaces) == 0 {
		return skipped("no namespace was given (WithKeyedNamespace)")
	}
	if s.dialect != sqllock.PostgreSQL || s.leaseTable {
		return skipped("only the advisory locks of PostgreSQL show which secret is in use")
	}
	if s.lacksTwo() {
		return skipped(noProof)
	}
	probe, err := sqllock.Open(ctx, s.db, sqllock.WithLogger(slog.New(slog.DiscardHandler)), sqllock.WithMaxConns(1))
	if err != nil {
		return failed(err)
	}
	defer probe.Close()
	var findings []Result
	for _, n := range s.namespaces {
		key := n.Key(rand.Text())
		lock, err := probe.TryLock(ctx, key)
		switch {
		case err == nil:
			_ = lock.Unlock()
		case errors.Is(err, sqllock.ErrNotExclusive):
			findings = append(findings, wrong("another Session uses the namespace "+string(key.Namespace())+" with another secret, so keys under this one are denied",
				"Give all processes the same secret: stop those with the wrong one. An idle process counts until it has ended."))
		default:
			return failed(err)
		}
	}
	return worst(passed("no other Session uses these namespaces with another secret"), findings)
}
