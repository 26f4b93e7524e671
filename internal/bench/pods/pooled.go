package pods

import (
	"context"
	"database/sql"
	"errors"

	"github.com/latchkey-go/latchkey/internal/bench/locks"
)

// A pooledPod takes a connection of its pool for each lock, and keeps it while
// the lock is held.
type pooledPod struct{ db *sql.DB }

func openPool(ctx context.Context, dsn string, connections int, warm bool) (pooledPod, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return pooledPod{}, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	p := pooledPod{db}
	if warm {
		if err := p.warm(ctx, connections); err != nil {
			return pooledPod{}, errors.Join(err, db.Close())
		}
	}
	return p, nil
}

// warm makes all connections, so that none is made while it is measured.
func (p pooledPod) warm(ctx context.Context, connections int) error {
	conns := make([]*sql.Conn, connections)
	for i := range conns {
		conn, err := p.db.Conn(ctx)
		if err != nil {
			return err
		}
		conns[i] = conn
	}
	for _, conn := range conns {
		if err := conn.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (p pooledPod) Acquire(ctx context.Context, name string) (locks.Held, error) {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	h := pooledLock{conn, namespace.Key(name).Int64()}
	var ok bool
	err = conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", h.key).Scan(&ok)
	if err == nil && ok {
		return h, nil
	}
	if err == nil {
		err = locks.ErrBusy
	}
	return nil, errors.Join(err, conn.Close())
}

func (p pooledPod) Close() error { return p.db.Close() }

type pooledLock struct {
	conn *sql.Conn
	key  int64
}

func (h pooledLock) Release(ctx context.Context) error {
	_, err := h.conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", h.key)
	return errors.Join(err, h.conn.Close())
}
