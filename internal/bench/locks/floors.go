package locks

import (
	"context"
	"database/sql"
	"errors"

	"github.com/latchkey-go/latchkey/sqllock"
)

func floors() []Contender {
	open := func(driver string) func(context.Context, Env, int) (Locks, error) {
		return func(ctx context.Context, env Env, callers int) (Locks, error) {
			return openSelects(ctx, env, driver, callers)
		}
	}
	const setup = "Not a lock: two prepared SELECT 1, on one connection for one caller, on a pool of 90 for more."
	return []Contender{
		{Name: SelectPgx, Family: Floor, Driver: Pgx, Setup: setup, Open: open(Pgx)},
		{Name: SelectPQ, Family: Floor, Driver: PQ, Setup: setup, Open: open(PQ)},
		{
			Name: Memory, Family: Floor,
			Setup: "The kit without a database: what its own code costs.",
			Open:  func(context.Context, Env, int) (Locks, error) { return memory{sqllock.NewMemory()}, nil },
		},
	}
}

// selects is as many round trips as a lock costs, and no lock.
type selects struct {
	db   *sql.DB
	conn *sql.Conn // nil: any of db's
	stmt *sql.Stmt
}

func openSelects(ctx context.Context, env Env, driver string, callers int) (Locks, error) {
	db, err := openPool(ctx, env, driver, PoolSize, callers)
	if err != nil {
		return nil, err
	}
	s := &selects{db: db}
	if callers == 1 {
		if s.conn, err = db.Conn(ctx); err == nil {
			s.stmt, err = s.conn.PrepareContext(ctx, "SELECT 1")
		}
	} else {
		s.stmt, err = db.PrepareContext(ctx, "SELECT 1")
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *selects) Acquire(ctx context.Context, _ string) (Held, error) { return s, s.Release(ctx) }

func (s *selects) Release(ctx context.Context) error {
	var one int
	return s.stmt.QueryRowContext(ctx).Scan(&one)
}

func (s *selects) Close() error {
	if s.conn == nil {
		return s.db.Close()
	}
	return errors.Join(s.conn.Close(), s.db.Close())
}

type memory struct{ *sqllock.Memory }

func (m memory) Acquire(ctx context.Context, name string) (Held, error) {
	return tryKit(ctx, m.Memory, namespace.Key(name))
}

func (memory) Close() error { return nil }
