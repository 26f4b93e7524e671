package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// BenchmarkEngine measures the engine alone. Each operation is a TryLock and an
// Unlock on a database that responds at once. Each caller has a key of its own,
// and a context that can end, as the context of a request can.
func BenchmarkEngine(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { benchmarkEngine(b, callers) })
	}
}

// BenchmarkObserver measures what it takes to tell of a statement that there is
// no Observer, or one. The engine is BenchmarkEngine with an Observer, which is
// told of two statements in each operation.
func BenchmarkObserver(b *testing.B) {
	var statements atomic.Uint64
	o := Observer{Exchanged: func(time.Duration, int) { statements.Add(1) }}
	b.Run("engine", func(b *testing.B) { benchmarkEngine(b, 1, WithObserver(o)) })
	for name, told := range map[string]observers{"none": nil, "one": {o}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				told.exchanged(time.Millisecond, 2)
			}
		})
	}
	if statements.Load() == 0 {
		b.Error("the Observer was not told")
	}
}

func benchmarkEngine(b *testing.B, callers int, opts ...Option) {
	opts = append(opts, func(o *options) { o.dialect = nullServer{} })
	s, err := Open(context.Background(), new(sql.DB), opts...)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var (
		wg   sync.WaitGroup
		next atomic.Int64
	)
	b.ReportAllocs()
	b.ResetTimer()
	for caller := range callers {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		wg.Go(func() {
			key := ID(int64(caller))
			for next.Add(1) <= int64(b.N) {
				lock, err := s.TryLock(ctx, key)
				if err != nil {
					b.Error(err)
					return
				}
				_ = lock.Unlock()
			}
		})
	}
	wg.Wait()
}

// BenchmarkStats is what a scrape of a Session costs, and what an audit costs,
// with a thousand locks held.
func BenchmarkStats(b *testing.B) {
	s, err := Open(context.Background(), new(sql.DB), func(o *options) { o.dialect = nullServer{} })
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for i := range int64(1000) {
		if _, err := s.TryLock(context.Background(), ID(i)); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("stats", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = s.Stats()
		}
	})
	b.Run("connections", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = s.Connections()
		}
	})
}

// A nullServer grants everything at once.
type nullServer struct{}

func (nullServer) Open(context.Context, *sql.DB, dialect.Settings) (dialect.Session, error) {
	return nullServer{}, nil
}
func (nullServer) Traits() dialect.Traits {
	return dialect.Traits{Lease: defaultLease, HeldPerSession: dialect.HeldPerConnection}
}
func (nullServer) Room() int                                   { return 1 << 20 }
func (nullServer) ReservedToken() (dialect.Token, bool)        { return dialect.Token{}, false }
func (nullServer) Exchange(*dialect.Batch) error               { return nil }
func (nullServer) Held() ([]dialect.Key, error)                { return nil, nil }
func (nullServer) UseSecret(dialect.SecretCheck) (bool, error) { return false, nil }
func (nullServer) DropSecret(dialect.SecretCheck) error        { return nil }
func (nullServer) Token() (dialect.Token, error)               { return dialect.Token{}, nil }
func (nullServer) Socket() net.Conn                            { return nil }
func (nullServer) Abort()                                      {}
func (nullServer) Destroy()                                    {}
