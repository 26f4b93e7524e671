package sqllock

import (
	"context"
	"database/sql"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/session"
)

// Open returns a Session on db. It connects, and proves that locks exclude on
// this very database.
//
// The errors say what to change:
//   - ErrNotExclusive: db leads to a transaction pooler, a standby, or a server
//     that only resembles PostgreSQL.
//   - ErrConfig: a person must correct something, such as a wrong password.
//   - ErrUnavailable: the database is away (but see WithLazyOpen).
//   - Another error: an option is wrong, or this database does not support it.
//
// ctx bounds Open only. The pool of db must allow two connections or more. For
// a lease table one is enough.
//
// Open panics if db is nil.
func Open(ctx context.Context, db *sql.DB, opts ...Option) (*Session, error) {
	if db == nil {
		panic("sqllock: Open needs a *sql.DB that is not nil")
	}
	o := newOptions(opts)
	if o.err != nil {
		return nil, o.err
	}
	engine, err := session.Open(ctx, db, o.Options)
	if err != nil {
		return nil, err
	}
	s := &Session{home: home{table: engine.Table.Table, session: engine}, named: o.named}
	s.groups = inside.GroupsBy(s.tryEach)
	return s, nil
}
