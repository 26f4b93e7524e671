package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
)

// A bench is one run of a scenario.
type bench struct {
	*servers
	plan     plan
	progress io.Writer
	series   []*series
}

// A contestant is measured once in each round.
type contestant struct {
	name    string
	x       string // what distinguishes it from others of its name
	against string // the name of the contestant with the same x that it is compared with
	redis   bool   // also compare the others with the fastest of these
	measure func(ctx context.Context) (round, error)
}

// A series is all rounds of a contestant.
type series struct {
	contestant
	rounds []round
}

// interleave measures contestants in rounds: each round has all of them, shortly
// after each other, so that a machine that slows down slows all of them down. Each
// time they come in another order, so that none always follows the same one. One
// that fails leaves; the others' figures count.
func (b *bench) interleave(ctx context.Context, contestants []contestant) error {
	all := make([]*series, len(contestants))
	for i, c := range contestants {
		all[i] = &series{contestant: c}
	}
	var failed []error
	for n := range b.plan.rounds {
		for _, i := range rand.New(rand.NewPCG(uint64(n), uint64(len(all)))).Perm(len(all)) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if all[i] == nil {
				continue
			}
			runtime.GC() // the one before leaves its garbage
			r, err := all[i].measure(ctx)
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", all[i].name, err))
				all[i] = nil
				continue
			}
			if !b.plan.quick {
				fmt.Fprintf(b.progress, "round %d, %s, %s: %.0f/s, p50 %v, p99 %v\n", n+1, all[i].name, all[i].x, r.rate, r.p50, r.p99)
			}
			all[i].rounds = append(all[i].rounds, r)
		}
	}
	b.series = append(b.series, slices.DeleteFunc(all, func(s *series) bool { return s == nil })...)
	return errors.Join(failed...)
}
