package session

import (
	"context"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// One attempt to do something with a driver that may hang.

// maxInDriver bounds the goroutines, and so the connections, that a stuck
// driver can cost. Beyond it no attempt is made.
const maxInDriver = 4

// hangs is how long an attempt may take before another one begins while it goes on.
const hangs = time.Second

// maxInFull is how many attempts begin in a full pool, where each ends those
// before and is the first from then on. The last attempt has the time that is
// left, since the server may be slow.
const maxInFull = 3

// An outcome is what one attempt has brought.
type outcome[T any] struct {
	brought T
	err     error
}

// attempt calls do, which needs the driver. It returns when caller ends, even
// if the driver is stuck. What the driver brings later is undone.
//
// An attempt may hang though the server is reachable again, because its bytes
// were lost while the network was cut. So while the first goes on, another one
// begins each second, in place of the one before. The first response counts, also
// an error.
func attempt[T any](caller context.Context, sl *slot, do func(context.Context) (T, error), undo func(T)) (brought T, err error) {
	if sl.inDriver.Load() >= maxInDriver {
		return brought, &dialect.Failure{Kind: dialect.Gone, Reason: "earlier attempts to connect are stuck in the driver"}
	}
	defer func() {
		if caller.Err() == nil {
			err = InTime(err)
		}
	}()
	ctx, cancel := context.WithTimeout(caller, sl.s.options.bound(dialect.ConnectTimeout))
	defer cancel()
	select {
	case sl.s.connecting <- struct{}{}:
		defer func() { <-sl.s.connecting }()
	case <-ctx.Done():
		return brought, ctx.Err()
	}
	outcomes := make(chan outcome[T])
	begin := func() (giveUp context.CancelFunc) {
		within, giveUp := context.WithCancel(ctx)
		sl.inDriver.Add(1)
		go func() {
			defer sl.inDriver.Add(-1)
			defer giveUp()
			brought, err := do(within)
			if within.Err() == nil {
				select {
				case outcomes <- outcome[T]{brought, err}:
					return
				case <-ctx.Done():
				}
			}
			if err == nil { // given up, or another one has won
				undo(brought)
			}
		}()
		return giveUp
	}
	first, other := begin(), func() {}
	ticker := time.NewTicker(hangs)
	defer ticker.Stop()
	for begun := 1; ; {
		select {
		case <-ctx.Done():
			return brought, ctx.Err()
		case <-ticker.C:
			stats := sl.s.db.Stats()
			full := stats.MaxOpenConnections > 0 && stats.MaxOpenConnections-stats.InUse < 2 // it has no two connections for another one
			if sl.inDriver.Load() >= maxInDriver || full && begun >= maxInFull {
				continue
			}
			if other(); full {
				first()
				first, other = begin(), func() {}
			} else {
				other = begin()
			}
			begun++
		case o := <-outcomes:
			return o.brought, o.err
		}
	}
}

// InTime returns err of an attempt that has its own time limit. The end of that
// context must not look like the end of a caller's.
func InTime(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &dialect.Failure{Kind: dialect.Gone, Reason: "the server did not answer in time"}
	}
	return err
}
