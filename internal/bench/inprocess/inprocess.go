// Package inprocess has benchmarks in testing.B form: of the kit without a
// network, and of what an operation allocates together with its driver.
package inprocess

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	_ "github.com/lib/pq"              // registers "postgres"

	"github.com/latchkey-go/latchkey/sqllock"
)

const namespace = sqllock.Namespace("bench")

// MemoryPair is a lock taken and given back without a database.
func MemoryPair(b *testing.B) {
	m := sqllock.NewMemory()
	b.ReportAllocs()
	for b.Loop() {
		lock, err := m.TryLock(b.Context(), sqllock.ID(1))
		if err != nil {
			b.Fatal(err)
		}
		_ = lock.Unlock()
	}
}

// Refusal is a second caller of the same process, which a Session refuses from
// memory. The key's hash is made in each call, as a limiter does, or before.
func Refusal(s *sqllock.Session, hash bool) func(*testing.B) {
	return func(b *testing.B) {
		key := namespace.Key("user-1")
		lock, err := s.TryLock(b.Context(), key)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = lock.Unlock() }()
		ctx := context.Background()
		b.ReportAllocs()
		for b.Loop() {
			if hash {
				key = namespace.Key("user-1")
			}
			if _, err := s.TryLock(ctx, key); !errors.Is(err, sqllock.ErrHeld) {
				b.Fatal(err)
			}
		}
	}
}

// SessionPair is a lock taken and given back through a Session by so many
// callers, each on a key of its own. The driver's allocations count, too.
func SessionPair(s *sqllock.Session, callers int) func(*testing.B) {
	return func(b *testing.B) {
		b.ReportAllocs()
		ctx := context.Background()
		var (
			wg   sync.WaitGroup
			next atomic.Int64
		)
		for caller := range callers {
			wg.Go(func() {
				for next.Add(1) <= int64(b.N) {
					lock, err := s.TryLock(ctx, sqllock.ID(int64(caller)))
					if err != nil {
						b.Error(err)
						return
					}
					_ = lock.Unlock()
				}
			})
		}
		wg.Wait()
		if b.Failed() {
			b.FailNow() // what was cut short has no figures
		}
	}
}

// Session opens a Session over the driver called name.
func Session(ctx context.Context, name, dsn string) (s *sqllock.Session, closeAll func() error, err error) {
	db, err := sql.Open(name, dsn)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(5)
	s, err = sqllock.Open(ctx, db)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return s, func() error { return errors.Join(s.Close(), db.Close()) }, nil
}
