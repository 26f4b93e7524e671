//go:build linux

package round

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
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
// and reads what was written. The error says what kept it from looking.
func (r *run) finish(ctx context.Context) error {
	r.alive()
	if r.result.Stuck() { // there may be no cluster to look at
		return nil
	}
	leader, err := r.leader(ctx)
	if err != nil {
		return err
	}
	db, err := r.cluster.Open(leader, cluster.Database)
	if err != nil {
		return err
	}
	defer db.Close()
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
	err = errors.Join(err, r.expect(ctx, "no lock to be left in pg_locks", none(db, "SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'")))
	for _, w := range r.workers {
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		report, err := w.Drain(limited)
		cancel()
		switch {
		case err != nil:
			r.violated("%v", err)
		case report.Goroutines > 0:
			r.violated("process %d left %d goroutines behind:\n%s", w.Config.Process, report.Goroutines, report.Stacks)
		}
	}
	for _, n := range r.cluster.Nodes {
		err = errors.Join(err, r.noSessions(ctx, n))
	}
	if err != nil {
		return err
	}
	if r.result.writes, err = worker.Stored(ctx, db); err != nil {
		return err
	}
	r.result.marks, err = marks(ctx, db)
	return err
}

// alive notes a violation for each process that has ended by itself.
func (r *run) alive() {
	for _, w := range r.workers {
		select {
		case <-w.Ended():
			r.violated("process %d has ended", w.Config.Process)
		default:
		}
	}
}

// noSessions expects that no client has a session on n.
func (r *run) noSessions(ctx context.Context, n *cluster.Node) error {
	db, err := r.cluster.Open(n, "postgres")
	if err != nil {
		return err
	}
	query := "SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = '" + cluster.User + "'"
	return errors.Join(r.expect(ctx, "no session to be left on "+n.Host.Name, none(db, query)), db.Close())
}

// none asks db for a truth.
func none(db *sql.DB, query string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (none bool, err error) {
		return none, db.QueryRowContext(ctx, query).Scan(&none)
	}
}

// expect notes a violation if a condition does not come soon.
func (r *run) expect(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	return r.expectIn(ctx, 10*time.Second+r.Lease, what, done)
}

// expectIn notes a violation if a condition does not come within d. If the last
// look failed, or none ended, it returns an error instead.
func (r *run) expectIn(ctx context.Context, d time.Duration, what string, done func(context.Context) (bool, error)) error {
	var failed error
	looked := false
	err := fleet.Poll(ctx, d, what, func(ctx context.Context) (bool, error) {
		ok, err := done(ctx)
		if ctx.Err() == nil { // a look that the end of the time cut short says nothing
			failed, looked = err, true
		}
		return ok && err == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case failed != nil || !looked || !errors.Is(err, fleet.ErrTimeout):
		return errors.Join(err, failed)
	}
	r.violated("%v", err)
	return nil
}

func (r *run) violated(format string, args ...any) {
	r.result.Violations = append(r.result.Violations, fmt.Sprintf(format, args...))
}

// maxBlind is how long the observer may see nothing. What happens in that time
// cannot be judged.
const maxBlind = 3 * time.Second

// check checks what the processes have written down.
func (r *run) check() error {
	events, err := r.read()
	if err != nil {
		return err
	}
	events = append(events, r.events...)
	all := r.result.Outcomes
	measure(all, events)
	w := windowsOf(r.seen, r.starved...)
	w.isolated, w.lease = r.isolated, history.Moment(r.Lease)
	looked := !r.result.Stuck()
	if r.result.Blind = time.Duration(w.blind()); r.result.Blind > maxBlind {
		r.stick(fmt.Errorf("the observer saw nothing for %v", r.result.Blind))
	}
	report := check.Sweep(events, check.Facts{Excuse: w.excuse, Complete: looked})
	overlaps(all, report, w)
	r.result.Operations, r.result.Contended, r.result.Locks = report.Operations, report.Contended, report.Locks
	r.result.Fenced = report.Writes[history.Fenced]
	err = report.Err()
	if looked {
		rows := r.result.writes
		r.result.Stored = len(rows)
		without, lost := missing(all, events, rows, r.Orders.Cluster.Synchronous, w)
		if len(lost) > 0 && !r.result.Stuck() {
			r.violated("%d writes were acknowledged and are not stored, and no fault may have lost them, first %+v", len(lost), lost[0])
		}
		for _, w := range remained(all, r.oldWrites, rows, r.result.marks) {
			r.violated("a commit of an old primary is stored, and one that the new one made before it: %+v", w)
		}
		err = errors.Join(err, check.Fenced(without, rows, false))
	}
	if err != nil {
		r.violated("%v", err)
	}
	return r.save(all)
}

// read returns the histories of all processes.
func (r *run) read() (events []history.Event, err error) {
	files, err := filepath.Glob(filepath.Join(r.Dir, "process-*.jsonl"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		some, err := history.ReadAll(file)
		if err = errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
		events = append(events, some...)
	}
	return events, nil
}

// save adds the faults to the histories, the writes that are stored, and the
// servers' logs.
func (r *run) save(all []Outcome) error {
	for name, what := range map[string]any{"stored.json": r.result.writes, "marks.json": r.result.marks, "primaries.json": r.seen, "isolated.json": r.isolated, "starved.json": r.starved, "minority.json": r.events, "old-writes.json": r.oldWrites} {
		text, err := json.Marshal(what)
		if err == nil {
			err = os.WriteFile(filepath.Join(r.Dir, name), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	if err := copyLogs(filepath.Join(r.Dir, "logs"), sandbox.Dir); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(r.Dir, "faults.jsonl"))
	if err != nil {
		return err
	}
	out := json.NewEncoder(file)
	for _, o := range all {
		err = errors.Join(err, out.Encode(history.Event{Fault: &history.Fault{Row: o.Row, Name: kindOf(o.Row).Name, Begin: o.Begin, End: o.End}}))
	}
	return errors.Join(err, file.Close())
}

// copyLogs copies the log of each server of each host below from, as
// to/host-server.log.
func copyLogs(to, from string) error {
	logs, err := filepath.Glob(filepath.Join(from, "*", "*.log"))
	if err == nil {
		err = os.MkdirAll(to, 0o700)
	}
	for _, name := range logs {
		text, e := os.ReadFile(name)
		if e == nil {
			e = os.WriteFile(filepath.Join(to, filepath.Base(filepath.Dir(name))+"-"+filepath.Base(name)), text, 0o600)
		}
		err = errors.Join(err, e)
	}
	return err
}
