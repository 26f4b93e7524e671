package pgxlatchkey_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	dbtest.Main(m)
}

var (
	session       = dbtest.Session
	mustLock      = dbtest.Lock
	unlock        = dbtest.Unlock
	advisoryLocks = dbtest.AdvisoryLocks
)

// newPool opens a pool of pgx on dsn, after changes to its settings.
func newPool(tb testing.TB, dsn string, changes ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	for _, change := range changes {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// A beginner begins a transaction of pgx, whose connection goes away with the
// test.
type beginner func(tb testing.TB, dsn string) pgx.Tx

// beginners are the ways to a transaction of pgx.
var beginners = map[string]beginner{
	"pool": func(tb testing.TB, dsn string) pgx.Tx { return begin(tb, newPool(tb, dsn)) },
	"conn": func(tb testing.TB, dsn string) pgx.Tx { return begin(tb, newConn(tb, dsn)) },
	// A wrapper hides whose transaction it is.
	"wrapped": func(tb testing.TB, dsn string) pgx.Tx { return struct{ pgx.Tx }{begin(tb, newPool(tb, dsn))} },
}

func newConn(tb testing.TB, dsn string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// begin begins a transaction, or a savepoint of one. It ends with the test.
func begin(tb testing.TB, on interface {
	Begin(ctx context.Context) (pgx.Tx, error)
},
) pgx.Tx {
	tb.Helper()
	tx, err := on.Begin(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}
