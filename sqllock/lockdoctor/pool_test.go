package lockdoctor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
)

// A pool whose connections are all in use cannot be examined any further.
func TestPlantedFullPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := dbtest.Hollow(func(context.Context) error { return nil })
		defer db.Close()
		db.SetMaxOpenConns(2)
		dbtest.Conn(t, db)
		dbtest.Conn(t, db)
		r := examine(t, db)
		mustFind(t, r, "pool", lockdoctor.Warning, "a pool of its own")
		mustFind(t, r, "connection", lockdoctor.Error, "pool")
	})
}

// A server that is frozen does not keep Check from returning, even if the driver
// is stuck. It is no fault of a pool that may open more connections.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		thaw := make(chan struct{})
		for _, tt := range []struct {
			wait func(context.Context) error
			fix  string
		}{
			{func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "Check that the server responds, and that the scheme"},
			{func(context.Context) error { <-thaw; return nil }, "Check that the server runs"}, // it ignores its context
		} {
			db := dbtest.Hollow(tt.wait)
			defer db.Close()
			mustFind(t, examine(t, db), "connection", lockdoctor.Error, tt.fix)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if r, err := lockdoctor.Check(ctx, db); err == nil {
				mustFind(t, r, "connection", lockdoctor.Error, "the server") // shortly before the deadline
			} else if err != context.DeadlineExceeded { //nolint:errorlint // the error itself
				t.Errorf("Check: %v, %v", r, err)
			}
		}
		close(thaw)
		synctest.Wait()
	})
}
