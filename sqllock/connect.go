package sqllock

import (
	"context"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// connect opens a connection. One backend at a time connects: each may need two of the
// pool's connections, and two of them could wait for each other's.
//
// enroll is for a session that is to write into the registry.
func (b *backend) connect(caller context.Context, enroll func(context.Context, dialect.Session) error) (dialect.Session, error) {
	if err := b.learn(caller); err != nil { // Open could not, for the database was away
		return nil, err
	}
	if err := b.s.options.validate(); err != nil {
		return nil, &dialect.Failure{Kind: dialect.Gone, Reason: err.Error(), Lasting: true}
	}
	return attempt(caller, b, func(ctx context.Context) (dialect.Session, error) {
		session, err := b.s.options.dialect.Open(ctx, b.s.db, b.s.settings())
		if err == nil && b.s.registrar != nil {
			if err = enroll(ctx, session); err != nil {
				session.Destroy()
			}
		}
		return session, err
	}, dialect.Session.Destroy)
}

// learn finds out which kind of database it is, unless that is known. Until it is, b is the
// only backend, and nobody needs what depends on it.
func (b *backend) learn(caller context.Context) error {
	s := b.s
	if s.options.dialect != nil {
		return nil
	}
	d, err := attempt(caller, b, func(ctx context.Context) (dialect.Dialect, error) {
		return dialect.Choose(ctx, s.db, s.options.table)
	}, func(dialect.Dialect) {})
	if err != nil {
		return err
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.options.dialect = d
	s.options.suit()
	return nil
}

// attempt does what needs a driver. It returns when caller ends, however stuck the
// driver is; what the driver may still bring is undone.
func attempt[T any](caller context.Context, b *backend, do func(context.Context) (T, error), undo func(T)) (brought T, err error) {
	if b.strays.Load() >= maxStrays {
		return brought, &dialect.Failure{Kind: dialect.Gone, Reason: "earlier attempts to connect are stuck in the driver"}
	}
	ctx, cancel := context.WithTimeout(caller, connectTimeout)
	defer cancel()
	defer func() {
		if caller.Err() == nil {
			err = inTime(err)
		}
	}()
	select {
	case b.s.connecting <- struct{}{}:
		defer func() { <-b.s.connecting }()
	case <-ctx.Done():
		return brought, ctx.Err()
	}
	type result struct {
		brought T
		err     error
	}
	done := make(chan result)
	abandoned := make(chan struct{})
	b.strays.Add(1)
	go func() {
		defer b.strays.Add(-1)
		brought, err := do(ctx)
		select {
		case done <- result{brought, err}:
		case <-abandoned:
			if err == nil {
				undo(brought)
			}
		}
	}()
	select {
	case r := <-done:
		return r.brought, r.err
	case <-ctx.Done():
		close(abandoned)
		return brought, ctx.Err()
	}
}
