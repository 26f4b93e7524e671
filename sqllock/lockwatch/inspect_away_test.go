package lockwatch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// On a standby Inspect fails and says why.
func TestInspectWrongServer(t *testing.T) {
	t.Parallel()
	standby, err := pgtest.New(t).Standby()
	if err != nil {
		t.Fatal(err)
	}
	for _, driver := range pgtest.Drivers() {
		db := dbtest.Open(t, driver, standby.DSN(""))
		if _, err := lockwatch.Inspect(t.Context(), db); !errors.Is(err, sqllock.ErrNotExclusive) || !strings.Contains(err.Error(), "standby") {
			t.Errorf("%s: on a standby: %v", driver, err)
		}
	}
}

// While the server is frozen, Inspect ends with its context, even if the driver
// ignores contexts.
func TestInspectIsBounded(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	for _, driver := range pgtest.Drivers() {
		db := dbtest.Open(t, driver, cluster.DSN(""))
		inspect(t, db)
		if err := cluster.Freeze(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := lockwatch.Inspect(ctx, db)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", driver, err)
		}
		if err := cluster.Thaw(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cluster.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := lockwatch.Inspect(t.Context(), dbtest.Open(t, "pgx", cluster.DSN(""))); !errors.Is(err, sqllock.ErrUnavailable) || strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("stopped: %v", err)
	}
}
