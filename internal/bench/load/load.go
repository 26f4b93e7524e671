// Package load measures a closed loop: each caller does one operation after the
// other, as fast as it can.
package load

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A Load is what to do, by how many callers, for how long.
type Load struct {
	Callers int
	WarmUp  time.Duration // not measured
	Measure time.Duration

	// Op is an operation of a caller. An error is counted as an error, not as an
	// operation.
	Op func(ctx context.Context, caller int) error

	// After is called after each Op of a caller, and is not measured; nil: nothing.
	After func(ctx context.Context, caller int) error

	// Server is the processor time of the servers so far; nil: it is not measured.
	Server func() time.Duration
}

// A Measurement is the result of a Load.
type Measurement struct {
	Ops            int64
	Errors         int64
	FirstErr       error
	Elapsed        time.Duration
	Latency        *hdrhistogram.Histogram // of operations that were done, in nanoseconds
	Client, Server time.Duration           // processor time of this process and of the servers
}

// Rate is operations per second.
func (m *Measurement) Rate() float64 { return float64(m.Ops) / m.Elapsed.Seconds() }

// NewHistogram is a histogram of nanoseconds, up to a minute, to three digits.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Minute.Nanoseconds(), 3)
}

// Run runs l and returns early when ctx ends. An operation counts if it ends
// within the time measured.
//
// Op gets a context that never ends: an operation under way at the end of the
// time is completed. Such a context is also the cheapest one for a contender. A
// context that can end makes database drivers start a goroutine for each query.
func Run(ctx context.Context, l Load) *Measurement {
	r := &run{load: l, callers: make([]caller, l.Callers)}
	var wg sync.WaitGroup
	for i := range r.callers {
		wg.Go(func() { r.loop(ctx, i) })
	}
	pause(ctx, l.WarmUp)
	client, server := r.times()
	start := time.Now()
	r.measuring.Store(true)
	pause(ctx, l.Measure)
	r.measuring.Store(false)
	m := &Measurement{Elapsed: time.Since(start), Latency: NewHistogram()}
	m.Client, m.Server = r.times()
	m.Client, m.Server = m.Client-client, m.Server-server
	r.over.Store(true)
	wg.Wait()
	for i := range r.callers {
		c := &r.callers[i]
		m.Ops += int64(len(c.took))
		m.Errors += c.errors
		if m.FirstErr == nil {
			m.FirstErr = c.firstErr
		}
		for _, took := range c.took {
			_ = m.Latency.RecordValue(max(took.Nanoseconds(), 1)) // beyond a minute: not recorded
		}
	}
	return m
}

// run is a Load under way.
type run struct {
	load      Load
	callers   []caller
	measuring atomic.Bool
	over      atomic.Bool
}

// A caller keeps the duration of each of its operations. A histogram for each
// caller would take a megabyte of cache lines.
//
// Invariant: only the caller's own goroutine writes to it.
type caller struct {
	took     []time.Duration
	errors   int64
	firstErr error
	_        [64]byte // so that the next caller is on another cache line
}

func (r *run) loop(ctx context.Context, i int) {
	c := &r.callers[i]
	endless := context.WithoutCancel(ctx)
	for !r.over.Load() && ctx.Err() == nil {
		start := time.Now()
		err := r.load.Op(endless, i)
		took, measuring := time.Since(start), r.measuring.Load()
		if err == nil && r.load.After != nil {
			err = r.load.After(endless, i)
		}
		switch {
		case !measuring:
		case err != nil:
			c.errors++
			if c.firstErr == nil {
				c.firstErr = err
			}
		default:
			c.took = append(c.took, took)
		}
	}
}

// times is the processor time of this process and of the servers so far.
func (r *run) times() (client, server time.Duration) {
	if r.load.Server != nil {
		server = r.load.Server()
	}
	return OwnTime(), server
}

// OwnTime is the processor time of this process so far.
func OwnTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
