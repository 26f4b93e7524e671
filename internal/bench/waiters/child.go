package waiters

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/latchkey-go/latchkey/internal/bench/load"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// Main does not return in a process that Run has started. Call it before
// anything else.
func Main() { subprocess.MainReader(role, runChild) }

func runChild(stdin io.Reader, config Config) error {
	in := bufio.NewReader(stdin)
	w, err := open(context.Background(), config)
	if err != nil {
		return err
	}
	defer w.close()
	if _, err := fmt.Println(ready); err != nil {
		return err
	}
	if line, err := in.ReadString('\n'); line != begin {
		return err
	}
	go func() { // die with the parent, or when it has the report
		_, _ = io.Copy(io.Discard, in)
		os.Exit(0)
	}()
	r, err := measure(config, w)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// measure has callers wait, hold and give back. What they waited is counted when
// the lock was granted while measuring.
func measure(config Config, w waiter) (report, error) {
	var measuring atomic.Bool
	waits := make([]*hdrhistogram.Histogram, config.Callers)
	for i := range waits {
		waits[i] = load.NewHistogram()
	}
	holds := make([][]hold, config.Callers)
	m := load.Run(context.Background(), load.Load{
		Callers: config.Callers, WarmUp: config.WarmUp, Measure: config.Measure,
		Usage: func() load.Usage { // called when measuring begins and when it ends
			measuring.Store(!measuring.Load())
			return load.Usage{Client: processorTime()}
		},
		Op: func(ctx context.Context, caller, _ int) error {
			key := rand.IntN(config.Keys)
			if config.Apart {
				key = caller
			}
			asked := time.Now()
			give, err := w.wait(ctx, int64(key))
			if err != nil {
				return err
			}
			granted, measured := time.Now(), measuring.Load()
			if measured {
				_ = waits[caller].RecordValue(max(granted.Sub(asked).Nanoseconds(), 1)) // beyond a minute: not recorded
			}
			if config.Hold > 0 {
				time.Sleep(config.Hold)
			}
			released := time.Now()
			err = give()
			if config.Apart {
				if measured {
					holds[caller] = append(holds[caller], hold{key, asked.UnixNano(), granted.UnixNano(), released.UnixNano()})
				}
				time.Sleep(rand.N(4*config.Hold + 1))
			}
			return err
		},
	})
	r := report{Grants: m.Ops, Errors: m.Errors, Elapsed: m.Elapsed, CPU: m.Usage.Client}
	if m.FirstErr != nil {
		r.First = m.FirstErr.Error()
	}
	r.Holds = slices.Concat(holds...)
	all := load.NewHistogram()
	for _, h := range waits {
		all.Merge(h)
	}
	var err error
	r.Waits, err = all.EncodeV2()
	return r, err
}

// processorTime is what this process has used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
