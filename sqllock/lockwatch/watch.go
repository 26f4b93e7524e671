package lockwatch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// Watch looks at the locks of db's database until ctx ends, and reports each
// [Finding]. It finds locks with a late heartbeat or lease and cycles of waits, and
// with [WithLongHeld] locks that are held for long. Watch ends a session only if
// [WithTerminate] says so.
//
// Watch calls report from its own goroutine, one call at a time. It reports what
// begins and what ends, each once, and writes both to its log. A nil report only
// logs. If the database is away or a right is missing, that is a Finding too, and
// Watch goes on.
//
// A database of PostgreSQL without the tables of [Schema] is no Finding: the log
// says once what is not seen without them. If [WithSchema] or WithTerminate is
// given, or if Watch has seen the tables before, it is one.
//
// Watch also cleans up. Once a minute it deletes up to a thousand rows of each of
// the registry's tables, and more at the next looks while there are more. These
// rows expired more than ten minutes ago. Heartbeats of a lock that is held stay.
// Watch skips locked rows.
//
// One Watch is enough for a fleet, and several do no harm. Each look takes one
// connection of db's pool for a moment, and is given up after 5 seconds. If the
// driver is stuck beyond that, Watch does not look again until it returns. See
// [Inspect] for the rights that Watch needs, and [Schema] for those on its tables.
//
// Watch returns the cause of ctx's end. If [Inspect] can see nothing in this
// database, Watch returns its error, which matches errors.ErrUnsupported. It
// panics if db is nil.
func Watch(ctx context.Context, db *sql.DB, report func(Finding), opts ...WatchOption) error {
	if db == nil {
		panic("lockwatch: Watch needs a *sql.DB that is not nil")
	}
	if report == nil {
		report = func(Finding) {}
	}
	w := newWatchdog(db, report, newWatchOptions(opts))
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
		timer.Reset(w.options.interval)
	}
}

// lookTimeout bounds each question to the database.
const lookTimeout = 5 * time.Second

// A watchdog is one call of Watch. Only the goroutine of that call uses it.
//
// Invariant: failures and diagnosis.open are what was reported to have begun and
// not to have ended.
type watchdog struct {
	db        *sql.DB
	inspector *Inspector
	options   watchOptions
	report    func(Finding)

	diagnosis Diagnosis
	failures  map[part]Finding // WatchFailed
	sweepAt   time.Time        // the next sweep is not before this

	registered bool // the registry must be there: an option needs it, or it was there
	noted      bool // the log says that there is none

	// silent has when this process first saw the last sign of life of each lock, by
	// its own monotonic clock: that of the database may step.
	silent     map[string]time.Time
	terminated map[string]bool // sessions that were ended and may still be there
}

func newWatchdog(db *sql.DB, report func(Finding), o watchOptions) *watchdog {
	return &watchdog{
		db: db, inspector: &Inspector{db: db, options: o.inspectOptions, busy: make(chan struct{}, 1)}, options: o, report: report,
		diagnosis: Diagnosis{late: o.late, long: o.long},
		failures:  make(map[part]Finding), terminated: make(map[string]bool), registered: o.schema != "" || o.terminate != nil,
	}
}

// A part of a watchdog's work fails and recovers independently of the others.
type part string

const (
	partLook      part = "look"
	partGaps      part = "gaps"
	partTerminate part = "terminate"
	partSweep     part = "sweep"
)

// look looks at the locks once. An error ends Watch.
func (w *watchdog) look(ctx context.Context) error {
	requested := time.Now()
	s, err := ask(ctx, w.inspector, bound.Of(lookTimeout), w.inspector.look)
	switch {
	case ctx.Err() != nil:
		return nil // the loop of Watch finds it
	case errors.Is(err, errors.ErrUnsupported):
		return err
	}
	w.notePart(partLook, err)
	if err != nil {
		return nil
	}
	w.notePart(partGaps, w.gaps(*s))
	begun, over := w.diagnosis.Look(s)
	w.reportAll(over)
	w.reportAll(begun)
	w.terminate(ctx, s, requested)
	w.sweep(ctx)
	return nil
}

// gaps returns what s does not show in full, as an error. A database that can have
// no registry lacks nothing, nor does one with a lease table instead. A service may
// have none on purpose: that is noted once.
func (w *watchdog) gaps(s Snapshot) error {
	absent := s.Heartbeats == TableMissing && s.Waits == TableMissing
	if absent && s.Leases != TableRead && !w.registered && !w.noted {
		w.noted = true
		w.options.log.Info("lockwatch: there is no registry, so late heartbeats and callers that poll are not seen (see lockwatch.Schema)")
	}
	w.registered = w.registered || s.Heartbeats == TableRead && s.Waits == TableRead
	if s.Waits == "" || absent && (s.Leases == TableRead || !w.registered) {
		s.Heartbeats, s.Waits = TableRead, TableRead
	}
	if s.Leases == TableMissing {
		s.Leases = TableRead // there are none
	}
	if gaps := s.Gaps(); len(gaps) > 0 {
		return errors.New("lockwatch: " + strings.Join(gaps, " "))
	}
	return nil
}

const (
	sweepPause = time.Minute      // between two sweeps
	sweepAge   = 10 * time.Minute // a row must have been expired for so long
	sweepLimit = 1000             // rows of each table
)

// sweep deletes the rows of dead processes, if it is time. The next look sweeps
// again if there may be more rows.
func (w *watchdog) sweep(ctx context.Context) {
	registry := w.inspector.registry
	if time.Now().Before(w.sweepAt) || !registry.Heartbeats.Readable() && !registry.Waits.Readable() {
		return
	}
	swept, err := ask(ctx, w.inspector, bound.Of(lookTimeout), func(ctx context.Context) (int64, error) {
		return registry.Sweep(ctx, w.db, sweepAge, sweepLimit)
	})
	if ctx.Err() != nil {
		return
	}
	if swept < sweepLimit {
		w.sweepAt = time.Now().Add(sweepPause)
	}
	if errcode.SQLState(err) == errcode.Forbidden {
		err = fmt.Errorf("lockwatch: this role may not remove what dead processes left in the registry: grant it DELETE and UPDATE on latchkey_heartbeats and latchkey_waits: %w", err)
	}
	w.notePart(partSweep, err)
}
