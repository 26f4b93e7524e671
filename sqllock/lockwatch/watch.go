package lockwatch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Watch looks at the locks of db's database again and again until ctx ends, and tells report, and its log, who
// is stuck: locks whose heartbeat is late while they are held, cycles of waits, with WithLongHeld
// also locks held for long. It ends nobody unless WithTerminate says so.
//
// Once a minute it removes from the registry what expired more than ten minutes before and is of no lock that is held, a
// thousand rows of each table; at the next look again, while there are as many. It waits for nobody there.
//
// report is called by Watch's own goroutine, one call at a time; nil only logs. What goes on is
// told once. A database that is away, or a right that is missing, is a Finding too: Watch goes on.
//
// One Watch is enough for a fleet; several do no harm. It takes one connection of db's pool for a moment at each look.
// A look is given up after 5 s; while a driver that heeds no context is stuck, there is no
// other. See [Inspect] for the rights that it needs, and [Schema] for those on its tables.
//
// It returns the cause of ctx's end; or, at once, an error that matches errors.ErrUnsupported if the database is not
// PostgreSQL. It panics if db is nil.
func Watch(ctx context.Context, db *sql.DB, report func(Finding), opts ...WatchOption) error {
	if db == nil {
		panic("lockwatch: Watch needs a *sql.DB that is not nil")
	}
	if report == nil {
		report = func(Finding) {}
	}
	o := newWatchOptions(opts)
	w := &watchdog{
		db: db, options: o, report: report,
		diagnosis: diagnosis{late: o.late, long: o.long},
		failures:  make(map[string]Finding), terminated: make(map[processID]bool), unanswered: make(map[processID]Finding),
		busy: make(chan struct{}, 1),
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		if err := w.look(ctx); err != nil {
			return err
		}
		timer.Reset(o.interval)
	}
}

// start is the origin of now.
var start = time.Now()

// now is the time by the monotonic clock; never 0.
func now() time.Duration { return time.Since(start) + 1 }

const (
	lookTimeout = 5 * time.Second  // of each question
	sweepPause  = time.Minute      // between two sweeps
	sweepAge    = 10 * time.Minute // how long a row has been expired
	sweepLimit  = 1000             // rows of a table
)

// A watchdog is one call of Watch. One goroutine uses it.
type watchdog struct {
	db      *sql.DB
	options watchOptions
	report  func(Finding)

	diagnosis  diagnosis
	failures   map[string]Finding    // WatchFailed that is not over, by the part of the work
	silences   map[lockID]silence    // if terminate matters
	terminated map[processID]bool    // sessions that were ended and may still be there
	unanswered map[processID]Finding // sessions that may have been ended
	sweepAt    time.Duration         // by now: not before
	busy       chan struct{}         // holds a token while a question is with the driver
}

// The parts of a watchdog's work that fail each by itself.
const (
	partLook      = "look"
	partRegistry  = "registry"
	partHidden    = "hidden"
	partTerminate = "terminate"
	partSweep     = "sweep"
)

// look looks once. Its error is one that ends Watch.
func (w *watchdog) look(ctx context.Context) error {
	requested := now()
	i, err := query(ctx, w, func(ctx context.Context) (*postgres.Inspection, error) {
		return postgres.Inspect(ctx, w.db, w.options.schema)
	})
	switch {
	case ctx.Err() != nil:
		return nil // Watch's loop sees it
	case errors.Is(err, errors.ErrUnsupported):
		return err
	}
	w.notePart(partLook, err)
	if err != nil {
		return nil
	}
	s := snapshotOf(i)
	w.notePart(partRegistry, registryError(s))
	w.notePart(partHidden, hiddenError(s))
	w.reportAll(w.diagnosis.look(s))
	w.terminate(ctx, i.Registry, s, requested)
	w.sweep(ctx, i.Registry)
	return nil
}

func registryError(s *Snapshot) error {
	if s.Heartbeats == TableRead && s.Waits == TableRead {
		return nil
	}
	return fmt.Errorf("lockwatch: late heartbeats and callers that poll are not seen in full: table latchkey_heartbeats is %s; latchkey_waits is %s (see lockwatch.Schema and WithSchema)",
		s.Heartbeats.reason(), s.Waits.reason())
}

func hiddenError(s *Snapshot) error {
	if s.Hidden == 0 {
		return nil
	}
	return errors.New("lockwatch: late heartbeats are not seen in full: this role may not see when other roles' sessions started: grant it pg_read_all_stats (or pg_monitor)")
}

// sweep removes what dead processes have left.
func (w *watchdog) sweep(ctx context.Context, registry postgres.Registry) {
	if now() < w.sweepAt || !registry.Heartbeats.Readable && !registry.Waits.Readable {
		return
	}
	swept, err := query(ctx, w, func(ctx context.Context) (int64, error) {
		return registry.Sweep(ctx, w.db, sweepAge, sweepLimit)
	})
	if ctx.Err() != nil {
		return
	}
	if swept < sweepLimit {
		w.sweepAt = now() + sweepPause
	}
	if errcode.SQLState(err) == insufficientPrivilege {
		err = fmt.Errorf("lockwatch: this role may not remove what dead processes left in the registry: grant it DELETE and UPDATE on latchkey_heartbeats and latchkey_waits: %w", err)
	}
	w.notePart(partSweep, err)
}

// query is ask's answer within lookTimeout, however stuck the driver is.
func query[T any](ctx context.Context, w *watchdog, ask func(context.Context) (T, error)) (none T, err error) {
	select {
	case w.busy <- struct{}{}:
	default:
		return none, errStuckLook
	}
	within, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	answer, err := bounded(within, func() (T, error) {
		defer func() { <-w.busy }()
		return ask(within)
	})
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return none, errLateLook
	}
	return answer, inspectError(err)
}

var (
	errStuckLook = fmt.Errorf("%w: an earlier look is stuck in the driver", sqllock.ErrUnavailable)
	errLateLook  = fmt.Errorf("%w: no answer within %v", sqllock.ErrUnavailable, lookTimeout)
)
