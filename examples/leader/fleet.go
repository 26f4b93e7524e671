package main

import (
	"context"
	"errors"
	"slices"
	"time"
)

// A fleet is the candidates that live.
type fleet struct {
	url        string
	chronicle  chronicle
	candidates []*process
	started    int
}

const fleetSize = 3

// withFleet starts a fleet, calls do and stops it: no candidate outlives the call.
func withFleet(ctx context.Context, url string, do func(*fleet) error) (err error) {
	f := &fleet{url: url}
	defer func() { err = errors.Join(err, f.stop()) }()
	for range fleetSize {
		if err := f.start(ctx); err != nil {
			return err
		}
	}
	return do(f)
}

func (f *fleet) start(ctx context.Context) error {
	f.started++
	p, err := startProcess(ctx, f.started, f.url, &f.chronicle)
	if err == nil {
		f.candidates = append(f.candidates, p)
	}
	return err
}

// stop has all candidates exit; called again it does nothing.
func (f *fleet) stop() (err error) {
	for _, p := range f.candidates { // all at once, then wait
		_ = wake(p) // or it does not hear
		p.tell()
	}
	for _, p := range f.candidates {
		err = errors.Join(err, p.exit())
	}
	f.candidates = nil
	return err
}

// remove forgets a candidate that has ended.
func (f *fleet) remove(p *process) {
	<-p.ended
	f.candidates = slices.DeleteFunc(f.candidates, func(other *process) bool { return other == p })
}

func (f *fleet) candidate(number int) *process {
	return f.candidates[slices.IndexFunc(f.candidates, func(p *process) bool { return p.number == number })]
}

// awaitLeader waits until a candidate, but one, has led after a moment.
func (f *fleet) awaitLeader(ctx context.Context, moment time.Time, not int) (*reign, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("nobody leads"))
	defer cancel()
	for {
		if r := f.chronicle.after(moment, not); r != nil {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// leaders is who calls itself leader by its health endpoint, and how many do not answer.
func (f *fleet) leaders(ctx context.Context) (numbers []int, silent int) {
	for _, p := range f.candidates {
		switch h, err := p.health(ctx); {
		case err != nil:
			silent++
		case h.Leader:
			numbers = append(numbers, p.number)
		}
	}
	return numbers, silent
}
