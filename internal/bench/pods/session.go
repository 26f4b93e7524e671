package pods

import (
	"context"
	"database/sql"
	"errors"

	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A sessionPod holds all its locks on one connection.
type sessionPod struct {
	db      *sql.DB
	session *sqllock.Session
}

func openSession(ctx context.Context, dsn string) (*sessionPod, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(5)
	session, err := sqllock.Open(ctx, db)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &sessionPod{db, session}, nil
}

func (p *sessionPod) Acquire(ctx context.Context, name string) (locks.Held, error) {
	lock, err := p.session.TryLock(ctx, namespace.Key(name))
	switch {
	case errors.Is(err, sqllock.ErrHeld):
		return nil, locks.ErrBusy
	case err != nil:
		return nil, err
	}
	return sessionLock{lock}, nil
}

func (p *sessionPod) Close() error { return errors.Join(p.session.Close(), p.db.Close()) }

type sessionLock struct{ lock *sqllock.Lock }

func (h sessionLock) Release(context.Context) error { return h.lock.Unlock() }
