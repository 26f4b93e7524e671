package lockwatch

import (
	"context"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

const (
	sweepPause = time.Minute      // between two sweeps
	sweepAge   = 10 * time.Minute // a row must have been expired for so long
	sweepLimit = 1000             // rows of each table
)

// sweep deletes the rows of dead processes, if it is time. The next look sweeps
// again if there may be more rows.
func (w *watchdog) sweep(ctx context.Context, registry postgres.Registry) {
	if time.Now().Before(w.sweepAt) || !registry.Heartbeats.Readable && !registry.Waits.Readable {
		return
	}
	swept, err := query(ctx, w, func(ctx context.Context) (int64, error) {
		return registry.Sweep(ctx, w.db, sweepAge, sweepLimit)
	})
	if ctx.Err() != nil {
		return
	}
	if swept < sweepLimit {
		w.sweepAt = time.Now().Add(sweepPause)
	}
	if errcode.SQLState(err) == insufficientPrivilege {
		err = fmt.Errorf("lockwatch: this role may not remove what dead processes left in the registry: grant it DELETE and UPDATE on latchkey_heartbeats and latchkey_waits: %w", err)
	}
	w.notePart(partSweep, err)
}

// insufficientPrivilege is the SQLSTATE of a missing right.
const insufficientPrivilege = "42501"
