// Package load measures a closed loop: each caller does one operation after the
// other, as fast as it can.
package load

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A Load is what to do, by how many callers, for how long.
type Load struct {
	Callers int
	WarmUp  time.Duration // not measured
	Measure time.Duration

	// Op is the n-th operation of a caller. An error is counted as an error, not
	// as an operation.
	Op func(ctx context.Context, caller, n int) error

	Usage func() Usage // processor time so far; nil: not measured
}

// Usage is processor time.
type Usage struct {
	Client time.Duration // of this process
	Server time.Duration // of the server's processes; 0 where it cannot be read
}

// A Measurement is the result of a Load.
type Measurement struct {
	Ops       int64
	Errors    int64
	FirstErr  error
	Elapsed   time.Duration
	Latency   *hdrhistogram.Histogram // of operations that were done, in nanoseconds
	Usage     Usage
	PerCaller []int64 // operations of each caller
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
	before := r.usage()
	start := time.Now()
	r.measuring.Store(true)
	pause(ctx, l.Measure)
	r.measuring.Store(false)
	elapsed := time.Since(start)
	after := r.usage()
	r.over.Store(true)
	wg.Wait()

	m := &Measurement{
		Elapsed: elapsed, Latency: NewHistogram(), PerCaller: make([]int64, l.Callers),
		Usage: Usage{Client: after.Client - before.Client, Server: after.Server - before.Server},
	}
	for i := range r.callers {
		c := &r.callers[i]
		m.Ops += int64(len(c.took))
		m.PerCaller[i] = int64(len(c.took))
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
	for n := 0; !r.over.Load() && ctx.Err() == nil; n++ {
		start := time.Now()
		err := r.load.Op(endless, i, n)
		took := time.Since(start)
		switch {
		case !r.measuring.Load():
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

func (r *run) usage() Usage {
	if r.load.Usage == nil {
		return Usage{}
	}
	return r.load.Usage()
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
