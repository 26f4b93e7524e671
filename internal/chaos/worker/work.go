package worker

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"   // registers "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	_ "github.com/lib/pq"              // registers "postgres"
	_ "modernc.org/sqlite"             // registers "sqlite"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// version is that of the kit. Package older sets it.
var version = "this commit"

// work is what the callers of a process share.
type work struct {
	config  Config
	pool    *sql.DB // the Session's
	session *sqllock.Session
	direct  *sql.DB // for fenced writes
	file    *os.File

	limits []limit // of the mixed callers
	rested atomic.Bool
	stuck  atomic.Pointer[[]int64] // what probe found; nil: not probed

	numbers atomic.Int64 // of calls, locks and writes so far, for the history

	granted, held, unserved, lost, written, lastOK atomic.Int64
}

func open(o Config) (w *work, err error) {
	w = &work{config: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if err := mysql.SetLogger(new(mysql.NopLogger)); err != nil { // it would log each fault
		return w, err
	}
	if w.file, err = os.OpenFile(o.History, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return w, err
	}
	if w.direct, err = sql.Open(o.Driver, o.Direct); err != nil {
		return w, err
	}
	w.direct.SetMaxOpenConns(4)
	w.direct.SetMaxIdleConns(4) // a connection that is opened anew costs more than a write
	if w.pool, err = sql.Open(o.Driver, o.DSN); err != nil {
		return w, err
	}
	w.pool.SetMaxOpenConns(5)
	options := []sqllock.Option{sqllock.WithLease(o.Lease), sqllock.WithLogger(slog.New(slog.DiscardHandler))}
	if o.Leases {
		options = append(options, sqllock.WithLeaseTable())
	}
	w.note(history.Event{Start: &history.Start{Process: o.Process, Version: version, Keys: numbers(allKeys(o.Keys))}})
	w.session, err = sqllock.Open(context.Background(), w.pool, options...)
	if err == nil {
		w.limits = limitsOn(w.session)
	}
	return w, err
}

// close ends the session and the pools. It may be called on what was opened in
// part.
func (w *work) close() error {
	var err error
	if w.session != nil {
		err = w.session.Close()
	}
	for _, pool := range []*sql.DB{w.pool, w.direct} {
		if pool != nil {
			err = errors.Join(err, pool.Close())
		}
	}
	if w.file != nil {
		err = errors.Join(err, w.file.Close())
	}
	return err
}

// work has callers at work until draining ends or they are told to rest, and
// reports the status meanwhile. When it returns, no caller holds a lock.
func (w *work) work(draining context.Context, o orders, say func(Status) error) error {
	done, finish := context.WithCancel(context.Background())
	told := make(chan error, 1)
	go func() { told <- w.reportStatus(done, say) }()
	resting, rest := context.WithCancel(draining)
	defer rest()
	var callers sync.WaitGroup
	seeds := uint64(0)
	start := func(n int, run func(*caller, context.Context)) {
		for range n {
			seeds++
			c := &caller{w, rand.New(rand.NewPCG(w.config.Seed, seeds))}
			callers.Go(func() { run(c, resting) })
		}
	}
	start(w.config.Callers, (*caller).runPlain)
	start(w.config.Mixed, (*caller).runMixed)
	select {
	case <-o.rest:
	case <-draining.Done():
	}
	rest()
	callers.Wait()
	w.rested.Store(true)
	w.probeUntil(draining, o.probe)
	finish()
	return <-told
}

// note appends e to the history, in one write of its own. So it survives
// whatever happens to this process the next moment.
func (w *work) note(e history.Event) {
	text, err := json.Marshal(e)
	if err == nil {
		_, err = w.file.Write(append(text, '\n'))
	}
	if err != nil { // work that is not noted proves nothing
		fmt.Fprintln(os.Stderr, "worker: history:", err)
		os.Exit(1)
	}
}

// number is one for a call, a lock or a write, unique in the history.
func (w *work) number() int64 {
	return int64(w.config.Process)*1_000_000_000 + w.numbers.Add(1)
}

// count counts a call that began at begin.
func (w *work) count(err error, begin history.Moment) {
	switch {
	case err == nil:
		w.granted.Add(1)
		for last := w.lastOK.Load(); last < int64(begin) && !w.lastOK.CompareAndSwap(last, int64(begin)); {
			last = w.lastOK.Load()
		}
	case ResultOf(err) == history.Held:
		w.held.Add(1)
	case ResultOf(err) == history.Unavailable:
		w.unserved.Add(1)
	}
}

// ResultOf returns err in the words of the history. ErrNotExclusive and
// ErrConfig count as a database that does not serve: nothing was granted.
func ResultOf(err error) history.Result {
	switch {
	case err == nil:
		return history.OK
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return history.GaveUp // also while the database was away
	case errors.Is(err, sqllock.ErrHeld), errors.Is(err, ratelimit.ErrBusy):
		return history.Held
	case errors.Is(err, sqllock.ErrCapacity):
		return history.Capacity
	case errors.Is(err, sqllock.ErrUnavailable), errors.Is(err, sqllock.ErrNotExclusive), errors.Is(err, sqllock.ErrConfig):
		return history.Unavailable
	case errors.Is(err, sqllock.ErrLost), errors.Is(err, sqllock.ErrReleased):
		return history.Lost
	case errors.Is(err, sqllock.ErrFenced):
		return history.Fenced
	case errors.Is(err, sqllock.ErrClosed):
		return history.Closed
	}
	return history.Failed
}
