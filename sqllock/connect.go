package sqllock

import (
	"context"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// connect opens a connection. It returns when caller ends, however stuck the
// driver is; what the driver may still bring is destroyed. One backend at a time
// connects: each needs two of the pool's connections, and two of them could wait
// for each other's.
func (b *backend) connect(caller context.Context) (session dialect.Session, err error) {
	if b.strays.Load() >= maxStrays {
		return nil, &dialect.Failure{Kind: dialect.Gone, Reason: "earlier attempts to connect are stuck in the driver"}
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
		return nil, ctx.Err()
	}
	type result struct {
		session dialect.Session
		err     error
	}
	opened := make(chan result)
	abandoned := make(chan struct{})
	b.strays.Add(1)
	go func() {
		defer b.strays.Add(-1)
		session, err := b.s.options.dialect.Open(ctx, b.s.db, b.s.settings())
		select {
		case opened <- result{session, err}:
		case <-abandoned:
			if session != nil {
				session.Destroy()
			}
		}
	}()
	select {
	case r := <-opened:
		return r.session, r.err
	case <-ctx.Done():
		close(abandoned)
		return nil, ctx.Err()
	}
}
