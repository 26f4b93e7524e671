package main

import (
	"context"
	"errors"
	"flag"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/inprocess"
	"github.com/latchkey-go/latchkey/internal/bench/results"
)

// inProcessCallers is how many take locks at once where allocations with the
// driver are counted.
const inProcessCallers = 512

// inProcess measures operations without a network, and what an operation
// allocates. Extra has these figures of one operation. For a middleware they are
// those of the handler with the middleware in front; "more" is the difference
// from the bare handler, which is measured right before.
//
//	ns, allocs, bytes
//	ns more, allocs more
func inProcess(ctx context.Context, b *bench) (err error) {
	if err := benchTime(b.plan.measure); err != nil {
		return err
	}
	pgx, closePgx, err := inprocess.Session(ctx, "pgx", b.env.Postgres)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePgx()) }()
	pq, closePQ, err := inprocess.Session(ctx, "postgres", b.env.Postgres)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePQ()) }()
	return b.interleave(ctx, "in-process", []contestant{
		benchmarked("pair on Memory", 1, inprocess.MemoryPair),
		benchmarked("refusal in the same process", 1, inprocess.Refusal(pgx, false)),
		benchmarked("refusal in the same process, with the key's hash", 1, inprocess.Refusal(pgx, true)),
		benchmarked("pair on a Session, pgx", inProcessCallers, inprocess.SessionPair(pgx, inProcessCallers)),
		benchmarked("pair on a Session, lib/pq", inProcessCallers, inprocess.SessionPair(pq, inProcessCallers)),
		addedTo("httpmw around a handler, on Memory", inprocess.Handler),
		addedTo("grpcmw around a unary handler, on Memory", inprocess.Unary),
	})
}

// benchTime sets how long a testing.Benchmark lasts.
func benchTime(d time.Duration) error {
	if flag.Lookup("test.benchtime") == nil {
		testing.Init()
	}
	return flag.Set("test.benchtime", d.String())
}

var errFailed = errors.New("a benchmark failed")

func benchmarked(name string, callers int, run func(*testing.B)) contestant {
	return contestant{name: name, x: callers, measure: func(context.Context) (results.Round, error) {
		r := testing.Benchmark(run)
		if r.N == 0 {
			return results.Round{}, errFailed
		}
		return benchmarkRound(r), nil
	}}
}

// addedTo is a part in front of a handler: run(false) is the bare handler.
func addedTo(name string, run func(limited bool) func(*testing.B)) contestant {
	return contestant{name: name, x: 1, measure: func(context.Context) (results.Round, error) {
		bare, limited := testing.Benchmark(run(false)), testing.Benchmark(run(true))
		if bare.N == 0 || limited.N == 0 {
			return results.Round{}, errFailed
		}
		without, with := benchmarkRound(bare), benchmarkRound(limited)
		for _, figure := range []string{"ns", "allocs"} {
			with.Extra[figure+" more"] = with.Extra[figure] - without.Extra[figure]
		}
		return with, nil
	}}
}

func benchmarkRound(r testing.BenchmarkResult) results.Round {
	n := float64(r.N)
	return results.Round{
		Rate: n / r.T.Seconds(),
		P50:  time.Duration(r.NsPerOp()),
		Extra: map[string]float64{
			"ns":     float64(r.T.Nanoseconds()) / n,
			"allocs": float64(r.MemAllocs) / n,
			"bytes":  float64(r.MemBytes) / n,
		},
	}
}
