package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// One export at a time per user, and two per tenant. The error says which of the
// limits was full.
func ExampleAcquireAll() {
	locks := sqllock.NewMemory() // a *sqllock.Session in a service
	perUser := ratelimit.OneAtATime(locks, "export-user")
	perTenant := ratelimit.AtMost(2, locks, "export-tenant")

	export := func(user, tenant string) {
		held, err := ratelimit.AcquireAll(context.Background(),
			ratelimit.Level{Limiter: perUser, ID: user},
			ratelimit.Level{Limiter: perTenant, ID: tenant},
		)
		var busy *ratelimit.BusyError
		if errors.As(err, &busy) {
			fmt.Println(user, "has to wait for", busy.Namespace)
			return
		}
		fmt.Println(user, "has", len(held), "places") // and keeps them in this example: no held.Unlock
	}
	export("ada", "acme")
	export("ada", "acme")
	export("grace", "acme")
	export("edsger", "acme")
	// Output:
	// ada has 2 places
	// ada has to wait for export-user
	// grace has 2 places
	// edsger has to wait for export-tenant
}

// The limit of a tenant depends on its plan, which may change at any time.
func ExampleWithLimit() {
	plans := map[string]int{"acme": 1} // from a cache in a service
	exports := ratelimit.AtMost(50, sqllock.NewMemory(), "export",
		ratelimit.WithLimit(func(_ context.Context, tenant string) int { return plans[tenant] }))

	export := func() {
		_, err := exports.Acquire(context.Background(), "acme")
		fmt.Println(err)
	}
	export()
	export()
	plans["acme"] = 2
	export()
	delete(plans, "acme")
	_, err := exports.Acquire(context.Background(), "acme")
	fmt.Println(errors.Is(err, ratelimit.ErrPolicy))
	// Output:
	// <nil>
	// ratelimit: export: key is busy
	// <nil>
	// true
}

type origin struct{}

// Nightly jobs leave a place for people, and wait behind them.
func ExampleWithClasses() {
	reports := ratelimit.AtMost(2, sqllock.NewMemory(), "report",
		ratelimit.WithWait(time.Millisecond, 10),
		ratelimit.WithClasses(
			func(ctx context.Context) string {
				class, _ := ctx.Value(origin{}).(string)
				return class
			},
			ratelimit.Class{Name: "person", Reserved: 1, Priority: 1},
			ratelimit.Class{Name: "job"},
		))
	for _, class := range []string{"job", "job", "person"} {
		_, err := reports.Acquire(context.WithValue(context.Background(), origin{}, class), "acme")
		fmt.Println(class, err)
	}
	// Output:
	// job <nil>
	// job ratelimit: report: key is busy
	// person <nil>
}
