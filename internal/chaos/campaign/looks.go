package campaign

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// lookEvery is how often an operator looks at the locks, and lookTimeout how
// long a look may take.
const (
	lookEvery   = 150 * time.Millisecond
	lookTimeout = 2 * time.Second
)

// watch looks at the locks of f like an operator, several times a second, and
// writes down what it sees, or that a look has failed. end ends that. It does
// nothing without a registry.
func watch(f *fleet.Fleet) (end func() error, err error) {
	if f.Services == 0 || !f.Store.Registry() {
		return func() error { return nil }, nil
	}
	file, err := os.Create(filepath.Join(f.Dir, "looks.jsonl"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var looking sync.WaitGroup
	var failed error
	looking.Go(func() {
		inspector := lockwatch.NewInspector(f.DB)
		for failed == nil && worker.Pause(ctx, lookEvery) == nil {
			if l := look(ctx, inspector); ctx.Err() == nil {
				failed = json.NewEncoder(file).Encode(history.Event{Serviced: history.Serviced{Look: l}})
			}
		}
	})
	return func() error {
		cancel()
		looking.Wait()
		if err := file.Close(); failed == nil {
			failed = err
		}
		return failed
	}, nil
}

// look returns what the locks are.
func look(ctx context.Context, inspector *lockwatch.Inspector) *history.Look {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	l := &history.Look{Begin: history.Now()}
	seen, err := inspector.Inspect(ctx)
	l.End = history.Now()
	if l.Failed = err != nil; l.Failed {
		return l
	}
	for _, h := range seen.Holders {
		shown := history.Shown{Key: h.Key.Int64()}
		if r := h.Registration; r != nil {
			shown.Session, shown.For = r.Session, history.Moment(seen.At.Sub(r.Acquired))
			shown.Process, shown.Lock = worker.NumbersOf(r.Holder, r.Name)
		}
		if !h.SecretCheck {
			l.Holders = append(l.Holders, shown)
		}
	}
	for _, w := range seen.Waiters {
		if w.Poll != nil {
			l.Waiters = append(l.Waiters, history.Poll{Key: w.Key.Int64(), Session: w.Poll.Session, Callers: w.Poll.Callers})
		}
	}
	return l
}
