package locks

import (
	"context"
	"database/sql"
	"errors"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	_ "github.com/lib/pq"              // registers "postgres"

	"github.com/latchkey-go/latchkey/sqllock"
)

// maxHeld lets thousands of callers hold a lock each: the default is 4,000.
const maxHeld = 20_000

// kit is one Session, on a *sql.DB of its own with SetMaxOpenConns(5) and all
// else at its defaults but for WithMaxHeld.
func kit() []Contender {
	contender := func(name, driver string, opts ...sqllock.Option) Contender {
		return Contender{Name: name, Family: Kit, Driver: driver, Open: func(ctx context.Context, env Env, _ int) (Locks, error) {
			return OpenKit(ctx, env, driver, opts...)
		}}
	}
	return []Contender{
		contender(KitPgx, Pgx),
		contender(KitPQ, PQ),
		contender("latchkey, pgx, async unlock", Pgx, sqllock.WithAsyncUnlock()), // Release does not wait for the database
		{Name: "latchkey, pgx, 2 Sessions", Family: Kit, Driver: Pgx, Open: openTwoKits},
	}
}

// KitLocks is one Session.
type KitLocks struct {
	Session *sqllock.Session
	db      *sql.DB
}

// OpenKit opens a Session on a pool of its own.
func OpenKit(ctx context.Context, env Env, driver string, opts ...sqllock.Option) (*KitLocks, error) {
	db, err := sql.Open(sqlName(driver), env.Postgres)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(5)
	s, err := sqllock.Open(ctx, db, append([]sqllock.Option{sqllock.WithMaxHeld(maxHeld)}, opts...)...)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &KitLocks{Session: s, db: db}, nil
}

// Acquire implements Locks.
func (k *KitLocks) Acquire(ctx context.Context, name string) (Held, error) {
	return k.acquire(ctx, namespace.Key(name))
}

// Close implements Locks.
func (k *KitLocks) Close() error { return errors.Join(k.Session.Close(), k.db.Close()) }

func (k *KitLocks) acquire(ctx context.Context, key sqllock.Key) (Held, error) {
	lock, err := k.Session.TryLock(ctx, key)
	switch {
	case err == nil:
		return (*kitLock)(lock), nil
	case errors.Is(err, sqllock.ErrHeld):
		return nil, ErrBusy
	}
	return nil, err
}

type kitLock sqllock.Lock

func (l *kitLock) Release(context.Context) error { return (*sqllock.Lock)(l).Unlock() }

// twoKits are two Sessions: the key says which one serves a name.
type twoKits [2]*KitLocks

func openTwoKits(ctx context.Context, env Env, _ int) (Locks, error) {
	first, err := OpenKit(ctx, env, Pgx)
	if err != nil {
		return nil, err
	}
	second, err := OpenKit(ctx, env, Pgx)
	if err != nil {
		return nil, errors.Join(err, first.Close())
	}
	return &twoKits{first, second}, nil
}

func (t *twoKits) Acquire(ctx context.Context, name string) (Held, error) {
	key := namespace.Key(name)
	return t[key.Int64()&1].acquire(ctx, key)
}

func (t *twoKits) Close() error { return errors.Join(t[0].Close(), t[1].Close()) }
