//go:build linux

package round

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/sandbox"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// finish ends the processes, checks that they leave nothing behind on any node,
// and reads what was written: rows is nil if it could not. The error says why.
func (r *run) finish(ctx context.Context) (rows []check.Stored, err error) {
	for _, w := range r.workers {
		select {
		case <-w.Ended():
			r.violated("process %d has ended", w.Config.Process)
		default:
		}
	}
	if r.result.Stuck != "" { // there may be no cluster to look at
		return nil, nil
	}
	leader, err := r.cluster.Leader(ctx, limit)
	if err != nil {
		return nil, err
	}
	for _, w := range r.workers {
		if err := w.Rest(); err != nil {
			r.violated("process %d does not hear that its callers are to end: %v", w.Config.Process, err)
		}
	}
	for _, w := range r.workers {
		err = errors.Join(err, r.expect(ctx, "its callers to end, and to hold nothing", func(context.Context) (bool, error) {
			s := w.Status()
			return s.Rested && s.Holding == 0, nil
		}))
	}
	err = errors.Join(err, r.expect(ctx, "no lock to be left in pg_locks", func(ctx context.Context) (bool, error) {
		return r.cluster.Holds(ctx, leader, cluster.Database, "SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'")
	}))
	for _, w := range r.workers {
		if err := fleet.Drain(ctx, w); err != nil {
			r.violated("%v", err)
		}
	}
	for _, n := range r.cluster.Nodes {
		err = errors.Join(err, r.expect(ctx, "no session to be left on "+n.Host.Name, func(ctx context.Context) (bool, error) {
			return r.cluster.Holds(ctx, n, "postgres", "SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = '"+cluster.User+"'")
		}))
	}
	if err != nil {
		return nil, err
	}
	db, err := r.cluster.Open(leader, "postgres", cluster.Database)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err = worker.Stored(ctx, db)
	return append([]check.Stored{}, rows...), err
}

// expect notes a violation if a condition does not come soon. If the last look
// failed, it returns that error instead.
func (r *run) expect(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	failed := errors.New("no look has ended")
	err := fleet.Poll(ctx, 10*time.Second+r.Lease, what, func(ctx context.Context) (bool, error) {
		ok, err := done(ctx)
		if ctx.Err() == nil { // a look that the end of the time cut short says nothing
			failed = err
		}
		return ok && err == nil, nil
	})
	if err == nil {
		return nil
	}
	if failed != nil || !errors.Is(err, fleet.ErrTimeout) {
		return errors.Join(err, failed)
	}
	r.violated("%v", err)
	return nil
}

// check checks what the processes have written down, and what the last primary
// has stored.
func (r *run) check(rows []check.Stored) {
	all := r.result.Outcomes
	facts := check.Facts{Complete: r.result.Stuck == "", Effects: map[int]check.Effect{}}
	facts.Excuse = func(a, b check.Grant) bool { return excuse(all, a, b) }
	events, err := history.ReadDir(r.dir)
	if err != nil {
		r.violated("%v", err)
	}
	events = append(events, r.events...)
	for _, o := range all {
		facts.Effects[o.Row] = check.Effect{Told: true, Back: 2 * limit}
		fault := history.Fault{Row: o.Row, Name: kindOf(o.Row).Name, Begin: o.Begin, End: o.Settled}
		events = append(events, history.Event{Fault: &fault})
	}
	report := check.Sweep(events, facts)
	for _, v := range report.Excused {
		if o := during(all, v.From); o != nil {
			o.Excused = append(o.Excused, time.Duration(v.To-v.From))
		}
	}
	r.result.Operations, r.result.Contended, r.result.Times = report.Operations, report.Contended, report.Rows
	r.result.Fenced, r.result.Stored = report.Writes[history.Fenced], len(rows)
	err = report.Err()
	if rows != nil {
		without, lost := missing(all, events, rows)
		if len(lost) > 0 && r.result.Stuck == "" {
			r.violated("%d writes were acknowledged and are not stored, and no fault may have lost them, first %+v", len(lost), lost[0])
		}
		err = errors.Join(err, check.Fenced(without, rows, false))
	}
	if err != nil {
		r.violated("%v", err)
	}
}

// keep copies the histories and the servers' logs out of the sandbox, together
// with what was seen.
func (r *run) keep(rows []check.Stored) error {
	dir, err := os.MkdirTemp("", "latchkey-failovers-")
	if err != nil {
		return err
	}
	r.result.Kept = dir
	err = os.CopyFS(filepath.Join(dir, "histories"), os.DirFS(r.dir))
	logs, e2 := filepath.Glob(filepath.Join(sandbox.Dir, "*", "*.log"))
	for _, name := range logs {
		text, e := os.ReadFile(name)
		to := filepath.Join(dir, filepath.Base(filepath.Dir(name))+"-"+filepath.Base(name))
		err = errors.Join(err, e, os.WriteFile(to, text, 0o600))
	}
	text, e3 := json.MarshalIndent(map[string]any{"result": r.result, "rows": rows, "events": r.events}, "", " ")
	return errors.Join(err, e2, e3, os.WriteFile(filepath.Join(dir, "seen.json"), text, 0o600))
}
