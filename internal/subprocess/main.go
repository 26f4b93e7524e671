package subprocess

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// The environment of a process that Start has started.
const (
	roleVariable   = "LATCHKEY_SUBPROCESS_ROLE"
	ordersVariable = "LATCHKEY_SUBPROCESS_ORDERS"
)

// known has the roles with which Main was called in this process. A process with
// any other role would not notice that it has one, and would do all that its
// parent does, from the start.
var known sync.Map

// endGrace is how long run may take after its context has ended. A parent that
// has crashed cannot kill a process that hangs.
const endGrace = 30 * time.Second

// Main calls run and exits, in a process that [Start] has started with this
// role; in any other process it does nothing. A program calls Main before
// anything else, once for each of its roles.
//
// The context of run ends when the parent asks for the end, or has ended
// itself. A run that has not returned 30 seconds later is cut off. The exit
// code is 0 if run returns nil, and otherwise 1.
func Main[Orders any](role string, run func(ctx context.Context, orders Orders) error) {
	MainReader(role, func(stdin io.Reader, orders Orders) error {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			_, _ = io.Copy(io.Discard, stdin) // ends with the parent, if not before
			cancel()
			time.AfterFunc(endGrace, func() { os.Exit(1) })
		}()
		return run(ctx, orders)
	})
}

// MainReader is [Main] for a run that reads what its parent writes. The parent
// asks for the end, or has ended, when stdin ends: run must return then.
func MainReader[Orders any](role string, run func(stdin io.Reader, orders Orders) error) {
	known.Store(role, true)
	if os.Getenv(roleVariable) != role {
		return
	}
	if err := follow(run); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// follow decodes the orders and calls run. The role is removed from the
// environment: a process that run starts by other means is not in it.
func follow[Orders any](run func(io.Reader, Orders) error) error {
	text := os.Getenv(ordersVariable)
	for _, name := range []string{roleVariable, ordersVariable} {
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	var orders Orders
	if err := json.Unmarshal([]byte(text), &orders); err != nil {
		return err
	}
	return run(os.Stdin, orders)
}
