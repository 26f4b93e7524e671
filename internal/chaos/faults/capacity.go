package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// lockTableFull fills the lock table of a server of its own: first as far as a
// Session may, which leaves room for others, then to the last place.
func lockTableFull(ctx context.Context, f *Injector) (victim *fleet.Member, err error) {
	c, err := pgtest.Start(pgtest.WithSettings(map[string]string{"max_locks_per_transaction": "10", "max_connections": "20"}))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	const limit = 50
	g, err := f.open(ctx, c.DSN(""), sqllock.WithMaxHeld(limit))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	var locks []*sqllock.Lock
	for i := range limit {
		lock, err := g.TryLock(ctx, sqllock.ID(int64(i)))
		if err != nil {
			return nil, err
		}
		locks = append(locks, lock)
	}
	if err := full(ctx, g); err != nil {
		return nil, err
	}
	if err := connects(ctx, c); err != nil {
		return nil, unexpected("a Session at its limit leaves no room for others", err)
	}
	for _, lock := range locks[1:] {
		if err := lock.Unlock(); err != nil {
			return nil, err
		}
	}
	if err := fillUp(ctx, c, g); err != nil {
		return nil, err
	}
	if err := locks[0].Err(); err != nil {
		return nil, violation("a lock that was there before: %w", err)
	}
	return nil, locks[0].Unlock()
}

// full checks that there is no room for another lock of g.
func full(ctx context.Context, g *client) error {
	lock, err := g.TryLock(ctx, sqllock.ID(1_000_000))
	if err == nil {
		return errors.Join(violation("a lock was granted without room"), lock.Unlock())
	}
	if !errors.Is(err, sqllock.ErrCapacity) {
		return unexpected("not ErrCapacity, and there is no room", err)
	}
	return nil
}

// connects checks that another client can connect and read.
func connects(ctx context.Context, c *pgtest.Cluster) error {
	db, err := sql.Open("pgx", c.DSN(""))
	if err != nil {
		return err
	}
	defer db.Close()
	var n int
	return db.QueryRowContext(ctx, "SELECT count(*) FROM pg_class").Scan(&n)
}

// fillUp takes all room that the server has and checks the answer to g. Then it
// gives the room back and checks that g is served within a second.
func fillUp(ctx context.Context, c *pgtest.Cluster, g *client) error {
	db, err := sql.Open("pgx", c.DSN(""))
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// What was taken before the statement failed stays.
	for _, batch := range []int{100_000, 1} {
		_, err = conn.ExecContext(ctx, fmt.Sprintf(
			"SELECT count(pg_advisory_lock(2000000 + %d + g)) FROM generate_series(1, %d) g", batch, batch))
		var coded interface{ SQLState() string }
		if !errors.As(err, &coded) || coded.SQLState() != "53200" {
			return fmt.Errorf("the lock table was not filled: %w", err)
		}
	}
	if err := full(ctx, g); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_unlock_all()"); err != nil {
		return err
	}
	return free(ctx, g, sqllock.ID(1_000_000), time.Second)
}
