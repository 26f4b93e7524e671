package nemesis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/sqllock"
)

// requestRows are about what handlers of requests do under a lock.
var requestRows = []Row{
	{Number: 29, Name: "handlers panic, exit, hijack", Quick: true, Effect: NothingLost, Bystander: true, inject: badHandlers},
}

// requestKeys is the namespace of a web server's limiter.
const requestKeys = sqllock.Namespace("requests")

// badHandlers has requests end in all the ways in which a handler can go wrong,
// and checks that none leaves a lock or a goroutine.
func badHandlers(ctx context.Context, f *Field) (*fleet.Member, error) {
	if err := f.serveBadly(ctx); err != nil {
		return nil, err
	}
	return nil, noneServes(ctx)
}

func (f *Field) serveBadly(ctx context.Context) (err error) {
	var database string
	if err := f.DB.QueryRowContext(ctx, "SELECT current_database()").Scan(&database); err != nil {
		return err
	}
	serving, err := f.open(ctx, f.Cluster.DSN(database))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, serving.close()) }()
	other, err := f.open(ctx, f.Cluster.DSN(database))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.close()) }()
	w := openWebsite(serving, f.Rand)
	defer w.close()
	ids := make([]string, 16)
	for i := range ids {
		ids[i] = strconv.FormatUint(f.Rand.Uint64(), 36)
	}
	if err := w.refuses(ctx, other, ids[0]); err != nil {
		return err
	}
	if err := w.storm(ctx, f.Rand, ids); err != nil {
		return broken("requests were not served, or kept their locks: %w", err)
	}
	for _, id := range ids {
		if err := free(ctx, other, requestKeys.Key(id), 5*time.Second); err != nil {
			return fmt.Errorf("after all requests: %w", err)
		}
	}
	return promised(f.NoStrangeLocks(ctx, 5*time.Second)) // while the Sessions could still have some
}

// servers are packages that are at work while requests are served.
var servers = []string{"net/http.", "latchkey/httpmw.", "latchkey/ratelimit.", "latchkey/sqllock."}

// noneServes waits until no goroutine is left of a web server, a client or a
// Session: this process has none but the row's.
func noneServes(ctx context.Context) error {
	var left string
	err := fleet.Poll(ctx, 8*time.Second, "goroutines to end", func(context.Context) (bool, error) {
		left = goroutinesOf(servers...)
		return left == "", nil
	})
	if err != nil && left != "" {
		err = fmt.Errorf("%w:\n%s", err, left)
	}
	return promised(err)
}

// goroutinesOf is the stacks of those goroutines that are in one of packages.
func goroutinesOf(packages ...string) string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var found []string
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		for _, name := range packages {
			if strings.Contains(stack, name) {
				found = append(found, stack)
				break
			}
		}
	}
	return strings.Join(found, "\n\n")
}
