package main

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A load is a closed loop: each caller does one operation after the other, as
// fast as it can.
type load struct {
	callers         int
	warmUp, measure time.Duration // warmUp is not measured

	// op is an operation of a caller. An error is counted as an error, not as an
	// operation.
	op func(ctx context.Context, caller int) error
}

// A round is what one measurement of a load found.
type round struct {
	rate     float64 // operations per second
	p50, p99 time.Duration
	busy     time.Duration // processor time of the whole machine for an operation; 0: not known
	errors   int
}

// A caller keeps the duration of each of its operations. A histogram for each
// caller would take a megabyte of cache lines.
//
// Invariant: only the caller's own goroutine writes to it.
type caller struct {
	took     []time.Duration
	errors   int
	firstErr error
	_        [64]byte // so that the next caller is on another cache line
}

// run runs l and returns early when ctx ends. An operation counts if it ends
// within the time measured. If all of them fail, run returns the first error.
//
// op gets a context that never ends: an operation under way at the end of the
// time is completed. Such a context is also the cheapest one for a contender. A
// context that can end makes database drivers start a goroutine for each query.
func (l load) run(ctx context.Context) (r round, err error) {
	var measuring, over atomic.Bool
	var wg sync.WaitGroup
	endless, callers := context.WithoutCancel(ctx), make([]caller, l.callers)
	for i := range callers {
		wg.Go(func() {
			for c := &callers[i]; !over.Load() && ctx.Err() == nil; {
				start := time.Now()
				err := l.op(endless, i)
				switch took := time.Since(start); {
				case !measuring.Load():
				case err != nil:
					if c.errors++; c.firstErr == nil {
						c.firstErr = err
					}
				default:
					c.took = append(c.took, took)
				}
			}
		})
	}
	pause(ctx, l.warmUp)
	start, wasBusy := time.Now(), machineBusy()
	measuring.Store(true)
	pause(ctx, l.measure)
	measuring.Store(false)
	elapsed, busy := time.Since(start), machineBusy()-wasBusy
	over.Store(true)
	wg.Wait()
	var all []time.Duration
	for i := range callers {
		all = append(all, callers[i].took...)
		r.errors += callers[i].errors
		if err == nil {
			err = callers[i].firstErr
		}
	}
	if len(all) == 0 {
		return r, err
	}
	slices.Sort(all)
	r.rate = float64(len(all)) / elapsed.Seconds()
	r.p50, r.p99, r.busy = all[len(all)/2], all[len(all)*99/100], busy/time.Duration(len(all))
	return r, nil
}

// machineBusy returns the time that all processors have worked since the system
// started, on Linux: the clients, and the servers.
func machineBusy() time.Duration {
	const tick = time.Second / 100
	text, err := os.ReadFile("/proc/stat")
	fields := strings.Fields(string(text)) // cpu user nice system idle iowait irq softirq …
	if err != nil || len(fields) < 8 {
		return 0
	}
	var ticks int64
	for _, i := range []int{1, 2, 3, 6, 7} {
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * tick
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
