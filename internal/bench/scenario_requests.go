package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/bench/load"
	"github.com/latchkey-go/latchkey/internal/bench/results"
	"github.com/latchkey-go/latchkey/internal/bench/route"
)

// requestCallers is how many clients ask at once.
const requestCallers = 64

// protocols are those the route is served over, each a scenario in the results.
var protocols = []struct {
	scenario string
	open     func(*route.Guard) (route.Endpoint, error)
}{
	{"http", func(g *route.Guard) (route.Endpoint, error) { return route.HTTP(g, requestCallers) }},
	{"grpc", route.GRPC},
}

// A guarding is a limiter in front of the route, and who takes the place that
// it then refuses.
type guarding struct {
	name, variant string
	refused       bool // one user for all, whose place is taken
	elsewhere     bool // by another instance
	open          func(ctx context.Context, b *bench) (*route.Guard, error)
}

const (
	admitted         = "admitted"
	refusedHere      = "refused, held by the same instance"
	refusedElsewhere = "refused, held by another instance"
)

func guardings() []guarding {
	bare := func(context.Context, *bench) (*route.Guard, error) { return route.Bare(), nil }
	memory := func(context.Context, *bench) (*route.Guard, error) { return route.Memory(), nil }
	postgres := func(ctx context.Context, b *bench) (*route.Guard, error) {
		return route.Postgres(ctx, b.env.Postgres)
	}
	redis := func(_ context.Context, b *bench) (*route.Guard, error) {
		return route.Redis(b.env.Redis), nil
	}
	return []guarding{
		{name: "bare", variant: admitted, open: bare},
		{name: "latchkey, Memory", variant: admitted, open: memory},
		{name: "latchkey, PostgreSQL", variant: admitted, open: postgres},
		{name: "Redis limiter", variant: admitted, open: redis},
		{name: "latchkey, Memory", variant: refusedHere, refused: true, open: memory},
		{name: "latchkey, PostgreSQL", variant: refusedHere, refused: true, open: postgres},
		{name: "latchkey, PostgreSQL", variant: refusedElsewhere, refused: true, elsewhere: true, open: postgres},
		{name: "Redis limiter", variant: refusedElsewhere, refused: true, elsewhere: true, open: redis},
	}
}

// requests measures a route that does nothing, over HTTP and gRPC: bare and
// behind limiters. Requests that are admitted and requests that are refused
// are measured apart; one that gets the other answer is an error.
func requests(ctx context.Context, b *bench) error {
	for _, protocol := range protocols {
		var contestants []contestant
		for _, g := range guardings() {
			contestants = append(contestants, contestant{
				name: g.name, variant: g.variant, x: requestCallers,
				measure: func(ctx context.Context) (results.Round, error) { return b.measureRoute(ctx, g, protocol.open) },
			})
		}
		if err := b.interleave(ctx, protocol.scenario, contestants); err != nil {
			return err
		}
	}
	return nil
}

var errOtherAnswer = errors.New("not the answer that was expected")

func (b *bench) measureRoute(ctx context.Context, g guarding, open func(*route.Guard) (route.Endpoint, error)) (measured results.Round, err error) {
	guard, err := g.open(ctx, b)
	if err != nil {
		return measured, err
	}
	defer func() { err = errors.Join(err, guard.Close()) }()
	call, answer := ownUser, error(nil)
	if g.refused {
		call, answer = oneUser, route.ErrRefused
		give, takeErr := g.take(ctx, b, guard)
		if takeErr != nil {
			return measured, takeErr
		}
		defer func() { err = errors.Join(err, give()) }()
	}
	endpoint, err := open(guard)
	if err != nil {
		return measured, err
	}
	defer func() { err = errors.Join(err, endpoint.Close()) }()
	m := load.Run(ctx, load.Load{
		Callers: requestCallers, WarmUp: b.plan.warmUp, Measure: b.plan.measure, Usage: b.usage,
		Op: func(ctx context.Context, caller, _ int) error {
			if err := endpoint.Call(ctx, caller, call(caller)); !errors.Is(err, answer) {
				return errors.Join(errOtherAnswer, err)
			}
			return nil
		},
	})
	if m.Ops == 0 && m.FirstErr != nil {
		return measured, m.FirstErr
	}
	return round(m), nil
}

// take takes the one user's place, here or by an instance of its own.
func (g *guarding) take(ctx context.Context, b *bench, here *route.Guard) (give func() error, err error) {
	if !g.elsewhere {
		return here.Hold(ctx, oneUser(0))
	}
	there, err := g.open(ctx, b)
	if err != nil {
		return nil, err
	}
	leave, err := there.Hold(ctx, oneUser(0))
	if err != nil {
		return nil, errors.Join(err, there.Close())
	}
	return func() error { return errors.Join(leave(), there.Close()) }, nil
}

var users = func() (names [requestCallers]string) {
	for i := range names {
		names[i] = fmt.Sprintf("user-%d", i)
	}
	return names
}()

func ownUser(caller int) string { return users[caller] }
func oneUser(int) string        { return users[0] }
