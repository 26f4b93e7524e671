package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// pgx keeps each notification until a caller reads it. A session reads them, so
// that the memory of a process that listens for months does not grow.
func TestNotificationsAreDropped(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	conns := map[int64]*pgx.Conn{} // by their server process
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(_ context.Context, c *pgx.Conn) error {
		mu.Lock()
		defer mu.Unlock()
		conns[int64(c.PgConn().PID())] = c
		return nil
	}))
	t.Cleanup(func() { _ = db.Close() })
	waiter := connect(t, db)
	c := conns[waiter.(dialect.Backend).Process().PID]
	ring := func() {
		for range 100 {
			if _, err := db.ExecContext(t.Context(), fmt.Sprintf("SELECT pg_notify('%s', '')", channelOf(big(1)[0]))); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept := func() (n int) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for {
			if _, err := c.WaitForNotification(over); err != nil {
				return n
			}
			n++
		}
	}
	listen(t, waiter, big(1)...)
	ring()
	exchange(t, waiter, dialect.Batch{Try: big(5)})
	if n := kept(); n != 0 {
		t.Errorf("the driver keeps %d notifications after a statement", n)
	}
	ring()
	listen(t, waiter)
	if n := kept(); n != 0 {
		t.Errorf("the driver keeps %d notifications after the end of listening", n)
	}
}
