package browser_test

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

const (
	heldLocks = 10000
	phase     = 10 * time.Second

	// answersWithin bounds every response. The page promises a second, and the log
	// of the test has the times. The bound only ends a hang.
	answersWithin = time.Minute
)

// With 10,000 locks held and 200 viewers the page answers, also while the database
// does not, and costs the database one look a second.
func TestLongLoad(t *testing.T) {
	cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"max_locks_per_transaction": "512"}))
	dsn, err := cluster.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pageDB, counts := countingDB(t, dsn)
	s := serve(t, dsn, pageDB)
	c := startClient(t, clientOrders{Driver: "pgx", DSN: dsn, Holder: "many"})

	a := newAudience(t, s.origin)
	began := time.Now()
	a.begin("few locks") // a look takes a moment, so only the page itself bounds their number
	time.Sleep(phase / 2)
	if looks, most := counts.looks.Load(), int64(time.Since(began)/time.Second)+1; looks > most {
		t.Errorf("with few locks: %d looks, want at most %d", looks, most)
	}
	c.fill(heldLocks)
	if n := len(s.snapshot().Holders); n < heldLocks {
		t.Fatalf("%d locks are held", n)
	}
	a.begin("many locks")
	time.Sleep(phase)
	lockertest.Eventually(t, "the page shows all locks", func() bool {
		page := a.get("locks")
		return strings.Contains(page, "Database: ok") && strings.Contains(page, strconv.Itoa(heldLocks)+" held")
	})
	a.begin("database away")
	if err := cluster.Freeze(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(phase)
	if err := cluster.Thaw(); err != nil {
		t.Fatal(err)
	}
	a.begin("database back")
	lockertest.Eventually(t, "the page shows the database again", func() bool { return strings.Contains(a.get("locks"), "Database: ok") })
	a.leave()
	elapsed := time.Since(began)

	a.report(t)
	looks, all := counts.looks.Load(), counts.all.Load()
	t.Logf("the database got %d looks in %.1f s, of %d statements in all", looks, elapsed.Seconds(), all)
	if most := int64(elapsed/time.Second) + 2; looks > most || looks < 2 {
		t.Errorf("%d looks, want at most %d, and at least 2", looks, most)
	}
}

// statementCounts counts what a pool sends.
type statementCounts struct {
	looks atomic.Int64 // statements that read pg_locks
	all   atomic.Int64
}

func (c *statementCounts) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	c.all.Add(1)
	if strings.Contains(q.SQL, "pg_locks") {
		c.looks.Add(1)
	}
	return ctx
}

func (c *statementCounts) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// countingDB opens a pool whose statements are counted.
func countingDB(t *testing.T, dsn string) (*sql.DB, *statementCounts) {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	counts := &statementCounts{}
	config.Tracer = counts
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	return db, counts
}
