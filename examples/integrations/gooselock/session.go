package gooselock

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A SessionLocker is a lock.SessionLocker on PostgreSQL. It locks on the
// connection on which goose runs its migrations in SQL: the server ends the lock
// and their transaction together. It needs a direct connection, or a pooler in
// session mode. A Provider that waits asks every 24 to 48 ms.
//
//	goose.WithSessionLocker(gooselock.NewSession(gooselock.Key))
type SessionLocker struct {
	key  sqllock.Key
	held sync.Map // of *sql.Conn to *sqllock.Lock
}

// NewSession returns a SessionLocker, which several Providers may share.
func NewSession(key sqllock.Key) *SessionLocker { return &SessionLocker{key: key} }

// SessionLock waits for the lock until ctx ends.
func (l *SessionLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	lock, err := sqllock.OnConn(conn).Lock(ctx, l.key)
	if err == nil {
		l.held.Store(conn, lock)
	}
	return err
}

// SessionUnlock releases the lock. It returns ErrLost if the connection is gone.
func (l *SessionLocker) SessionUnlock(_ context.Context, conn *sql.Conn) error {
	held, ok := l.held.LoadAndDelete(conn)
	if !ok {
		return errors.New("gooselock: not locked")
	}
	return held.(*sqllock.Lock).Unlock()
}
