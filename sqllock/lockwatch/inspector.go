package lockwatch

import (
	"context"
	"database/sql"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// An Inspector takes Snapshots of one database again and again, at a lower cost
// than [Inspect]. [NewInspector] makes one. It is safe for concurrent use.
//
// On PostgreSQL an Inspector remembers for a minute which tables there are, and a
// Snapshot costs one query. On other databases it does the same as Inspect.
//
// At most one question is with the driver. While the driver is stuck with an earlier
// one, an Inspector takes no second connection of the pool.
type Inspector struct {
	db     *sql.DB
	schema string
	busy   chan struct{} // holds a token while a question is with the driver; protects the fields below

	registry postgres.Registry // as of an earlier Snapshot
	until    time.Time         // the registry holds before this
}

// registryAge is how long an Inspector remembers the tables.
const registryAge = time.Minute

// NewInspector returns an Inspector for db. It makes no request. It panics if db is
// nil.
func NewInspector(db *sql.DB, opts ...InspectOption) *Inspector {
	if db == nil {
		panic("lockwatch: NewInspector needs a *sql.DB that is not nil")
	}
	return &Inspector{db: db, schema: newInspectOptions(opts).schema, busy: make(chan struct{}, 1)}
}

// Inspect returns a Snapshot, like the function [Inspect] and with the same errors.
// It also returns an error that matches sqllock.ErrUnavailable, at once, while an
// earlier question is with the driver.
func (i *Inspector) Inspect(ctx context.Context) (*Snapshot, error) {
	select {
	case i.busy <- struct{}{}:
	default:
		return nil, errStuckLook
	}
	s, err := bounded(ctx, func() (*Snapshot, error) {
		defer func() { <-i.busy }()
		return i.take(ctx)
	})
	return s, publicError(err)
}

func (i *Inspector) take(ctx context.Context) (*Snapshot, error) {
	if time.Now().Before(i.until) {
		s, err := i.again(ctx)
		if !dialect.IsStatement(err) {
			return s, err
		}
		i.until = time.Time{} // the tables may be others now
	}
	seen, err := lookAt(ctx, i.db, i.schema)
	if err != nil {
		return nil, err
	}
	if seen.Heartbeats != "" { // only PostgreSQL's own look has a registry
		i.registry, i.until = seen.registry, time.Now().Add(registryAge)
	}
	return seen.Snapshot, nil
}

// again takes a Snapshot with the tables that are known.
func (i *Inspector) again(ctx context.Context) (*Snapshot, error) {
	conn, err := postgres.Borrow(ctx, i.db)
	if err != nil {
		return nil, dialect.Fail(err)
	}
	defer conn.Close()
	seen, err := i.registry.InspectAgain(ctx, conn)
	if err != nil {
		return nil, err
	}
	return snapshotOf(seen), nil
}
