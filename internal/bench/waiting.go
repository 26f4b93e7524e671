package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/load"
	"github.com/latchkey-go/latchkey/internal/subprocess"
	"github.com/latchkey-go/latchkey/sqllock"
)

// waiterRole is that of a process that waits for locks.
const waiterRole = "waiter"

const (
	waiterProcesses = 4
	waiterKeys      = 16
)

// The ways to wait.
const (
	sessionLock  = "latchkey, Session.Lock"
	advisoryLock = "pg_advisory_lock, a connection each"
)

// waiterOrders say what each of the processes does.
type waiterOrders struct {
	How         string
	Postgres    string // DSN
	Connections int    // of the pool of advisoryLock
	Callers     int
	Hold        time.Duration
	Apart       bool          // caller i takes key i alone, and rests for up to four times Hold after it; else each takes any key
	Begin       time.Time     // of the measurement
	Measure     time.Duration // for so long
}

// A hold is one lock from the request to its release, in nanoseconds of the
// wall clock, which all processes of a machine share.
type hold struct {
	Key                      int
	Asked, Granted, Released int64
}

// A waiterReport is what a process prints when it is done.
type waiterReport struct {
	Holds   []hold // granted while measured
	Errors  int64
	First   string // text of the first error
	Elapsed time.Duration
	Client  time.Duration // processor time
}

// waiting measures callers in several processes that wait for few keys.
func waiting(ctx context.Context, b *bench) error {
	return b.measureWaiters(ctx, []time.Duration{0, time.Millisecond}, waiterOrders{Callers: 64, Connections: 64}, func(holds [][]hold) (times []time.Duration) {
		for _, h := range slices.Concat(holds...) {
			times = append(times, time.Duration(h.Granted-h.Asked))
		}
		return times
	})
}

// handOver measures how long a key takes from its release in one process to the
// grant in another.
func handOver(ctx context.Context, b *bench) error {
	lengths := []time.Duration{500 * time.Microsecond, 5 * time.Millisecond, 50 * time.Millisecond, time.Second}
	return b.measureWaiters(ctx, lengths, waiterOrders{Callers: waiterKeys, Connections: waiterKeys, Apart: true}, handOvers)
}

// handOvers returns the times from a release in one process to the grant in
// another. holds has those of each process. A grant counts if its caller waited
// when the key was released.
func handOvers(holds [][]hold) (times []time.Duration) {
	type ofProcess struct {
		hold
		process int
	}
	var all []ofProcess
	for process, list := range holds {
		for _, h := range list {
			all = append(all, ofProcess{h, process})
		}
	}
	slices.SortFunc(all, func(a, b ofProcess) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Granted, b.Granted))
	})
	for i := 1; i < len(all); i++ {
		before, h := all[i-1], all[i]
		if h.Key == before.Key && h.process != before.process && h.Asked < before.Released {
			times = append(times, time.Duration(h.Granted-before.Released))
		}
	}
	return times
}

// measureWaiters compares the two ways to wait, for each length of a hold. The
// rate is of grants, and times returns what the quantiles are of.
func (b *bench) measureWaiters(ctx context.Context, lengths []time.Duration, orders waiterOrders, times func([][]hold) []time.Duration) error {
	// A Session keeps a key in its process for up to a second: a shorter measurement
	// would see shares that even out later.
	orders.Postgres, orders.Measure = b.env.Postgres, max(20*b.plan.measure, 2*time.Second)
	var all []contestant
	for _, length := range lengths {
		for _, how := range []string{sessionLock, advisoryLock} {
			orders := orders
			orders.Hold, orders.How = length, how
			all = append(all, contestant{name: how, x: fmt.Sprintf("held for %v", length), against: advisoryLock, measure: func(ctx context.Context) (round, error) {
				return b.measureProcesses(ctx, orders, times)
			}})
		}
	}
	return b.interleave(ctx, all)
}

func (b *bench) measureProcesses(ctx context.Context, orders waiterOrders, times func([][]hold) []time.Duration) (r round, err error) {
	orders.Begin = time.Now().Add(2 * time.Second) // by then all processes are connected
	var processes []*subprocess.Process
	defer func() {
		for _, p := range processes {
			err = errors.Join(err, p.Kill()) // it has reported, or failed
		}
	}()
	for range waiterProcesses {
		p, err := subprocess.Start(waiterRole, orders)
		if err != nil {
			return r, err
		}
		processes = append(processes, p)
		defer context.AfterFunc(ctx, func() { _ = p.Kill() })()
	}
	time.Sleep(time.Until(orders.Begin))
	server := b.server()
	time.Sleep(orders.Measure)
	server = b.server() - server
	var sum waiterReport
	var holds [][]hold
	for _, p := range processes {
		var report waiterReport
		if err := json.NewDecoder(p.Stdout).Decode(&report); err != nil {
			return r, fmt.Errorf("no report of a process: %w", err)
		}
		holds = append(holds, report.Holds)
		sum.Errors += report.Errors
		sum.First = cmp.Or(sum.First, report.First)
		sum.Client += report.Client
		sum.Elapsed += report.Elapsed / waiterProcesses
	}
	grants, h := len(slices.Concat(holds...)), load.NewHistogram()
	for _, d := range times(holds) {
		_ = h.RecordValue(max(d.Nanoseconds(), 1)) // beyond a minute: not recorded
	}
	if h.TotalCount() == 0 {
		return r, errors.New("nothing was measured: " + sum.First)
	}
	return round{
		rate: float64(grants) / sum.Elapsed.Seconds(), p50: time.Duration(h.ValueAtQuantile(50)), p99: time.Duration(h.ValueAtQuantile(99)),
		client: sum.Client / time.Duration(grants), server: server / time.Duration(grants), errors: sum.Errors,
	}, nil
}

// beWaiter is what each of the processes does.
func beWaiter(ctx context.Context, orders waiterOrders) error {
	wait, err := openWaiter(ctx, orders)
	if err != nil {
		return err
	}
	holds := make([][]hold, orders.Callers)
	m := load.Run(ctx, load.Load{
		Callers: orders.Callers, WarmUp: time.Until(orders.Begin), Measure: orders.Measure,
		Op: func(ctx context.Context, caller int) error {
			h := hold{Key: rand.IntN(waiterKeys), Asked: time.Now().UnixNano()}
			if orders.Apart {
				h.Key = caller
			}
			give, err := wait(ctx, int64(h.Key))
			if err != nil {
				return err
			}
			granted := time.Now()
			time.Sleep(orders.Hold)
			h.Granted, h.Released = granted.UnixNano(), time.Now().UnixNano()
			err = give()
			if after := granted.Sub(orders.Begin); after > 0 && after < orders.Measure {
				holds[caller] = append(holds[caller], h)
			}
			return err
		},
		After: func(context.Context, int) error {
			if orders.Apart {
				time.Sleep(rand.N(4*orders.Hold + 1)) // until the next request
			}
			return nil
		},
	})
	report := waiterReport{Holds: slices.Concat(holds...), Errors: m.Errors, Elapsed: m.Elapsed, Client: m.Client}
	if m.FirstErr != nil {
		report.First = m.FirstErr.Error()
	}
	err = json.NewEncoder(os.Stdout).Encode(report)
	<-ctx.Done() // the parent ends this process when it has the report
	return err
}

// openWaiter returns a function that waits for a lock. Its connections end with
// the process.
func openWaiter(ctx context.Context, orders waiterOrders) (wait func(context.Context, int64) (give func() error, err error), err error) {
	db, err := sql.Open("pgx", orders.Postgres)
	if err != nil {
		return nil, err
	}
	if orders.How == sessionLock {
		s, err := sqllock.Open(ctx, db)
		return func(ctx context.Context, key int64) (func() error, error) {
			lock, err := s.Lock(ctx, sqllock.ID(key))
			if err != nil {
				return nil, err
			}
			return lock.Unlock, nil
		}, err
	}
	db.SetMaxOpenConns(orders.Connections)
	db.SetMaxIdleConns(orders.Connections)
	return func(ctx context.Context, key int64) (func() error, error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return func() error {
			_, err := conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", key)
			return errors.Join(err, conn.Close())
		}, nil
	}, nil
}
