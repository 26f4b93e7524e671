package lockwatch_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A queryCounter counts the statements of a pool, and not those that begin and end
// a transaction.
type queryCounter struct {
	mu sync.Mutex
	n  int
}

func (c *queryCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text := strings.ToLower(data.SQL); !strings.HasPrefix(text, "begin") && !strings.HasPrefix(text, "commit") && !strings.HasPrefix(text, "rollback") && text != "-- ping" {
		c.n++
	}
	return ctx
}

func (c *queryCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *queryCounter) take() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = 0
	return n
}

// After the first one, each Snapshot costs one query.
func TestInspectorOneQuery(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	counter := &queryCounter{}
	config.Tracer = counter
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	inspector := lockwatch.NewInspector(db)
	first, err := inspector.Inspect(t.Context())
	if err != nil || len(first.Holders) != 0 {
		t.Fatalf("%v, %v", first, err)
	}
	counter.take()
	dbtest.ExecuteOn(t, dbtest.Conn(t, db), "SELECT pg_advisory_lock(7)")
	counter.take()
	for range 10 {
		s, err := inspector.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		holder(t, s, sqllock.ID(7))
	}
	if n := counter.take(); n != 10 {
		t.Errorf("10 snapshots cost %d queries", n)
	}
}

// An Inspector notices that the tables of the registry have gone or have others in
// their place.
func TestInspectorTablesChange(t *testing.T) {
	t.Parallel()
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := dbtest.Open(t, driver, dsn)
		dbtest.Create(t, db, lockwatch.Schema(sqllock.PostgreSQL))
		inspector := lockwatch.NewInspector(db)
		for _, want := range []lockwatch.TableState{lockwatch.TableRead, lockwatch.TableMissing} {
			s, err := inspector.Inspect(t.Context())
			if err != nil || s.Heartbeats != want {
				t.Fatalf("state %q, %v, want %q", s.Heartbeats, err, want)
			}
			dbtest.Execute(t, db, "DROP TABLE IF EXISTS latchkey_heartbeats")
		}
	})
}
