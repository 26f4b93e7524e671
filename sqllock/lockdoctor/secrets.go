package lockdoctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// secrets finds out whether another Session uses a namespace with another
// secret. It asks as any Session does: by a request for a key.
func secrets(ctx context.Context, s *subject) (fine string, err error) {
	if len(s.namespaces) == 0 {
		return "", skip("no namespace was given (WithKeyedNamespace)")
	}
	if s.dialect != sqllock.PostgreSQL || s.leaseTable {
		return "", skip("here no Session shows which secret it uses: compare the configuration of all processes")
	}
	if err := s.hasTwo(); err != nil {
		return "", err
	}
	probe, err := sqllock.Open(ctx, s.db, sqllock.WithLogger(slog.New(slog.DiscardHandler)), sqllock.WithMaxConns(1))
	if err != nil {
		return "", unconnected{err}
	}
	defer probe.Close()
	for _, n := range s.namespaces {
		key := n.Key(rand.Text())
		lock, err := probe.TryLock(ctx, key)
		switch {
		case err == nil:
			_ = lock.Unlock()
		case errors.Is(err, sqllock.ErrNotExclusive):
			others, err := s.secretUsers(ctx, string(key.Namespace()))
			if err != nil {
				return "", err
			}
			s.wrong("another Session uses the namespace "+string(key.Namespace())+" with another secret ("+processes(others)+"), so keys under this one are denied",
				"Give all processes the same secret: stop those with the wrong one. An idle process counts until it has ended.")
		default:
			return "", err
		}
	}
	return "no other Session uses these namespaces with another secret", nil
}

// secretUsers returns the server processes of Sessions that use a namespace with
// a secret.
func (s *subject) secretUsers(ctx context.Context, namespace string) (pids []int64, err error) {
	query := fmt.Sprintf(`SELECT DISTINCT pid FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND mode = 'ShareLock' AND granted
		AND classid = %d::oid AND database = (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()))`,
		uint32(dialect.SecretCheckOf(namespace, 0).Class)) //nolint:gosec // as the server shows it
	return pids, s.each(ctx, query, func(scan func(...any) error) error {
		var pid int64
		err := scan(&pid)
		pids = append(pids, pid)
		return err
	})
}
