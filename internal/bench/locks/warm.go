package locks

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// warm opens as many connections of db as callers will use at once: a Session is
// connected before it is measured, so the others are too.
func warm(ctx context.Context, db *sql.DB, callers int) error {
	return openAll(min(callers, db.Stats().MaxOpenConnections), func() (func(), error) {
		conn, err := db.Conn(ctx)
		return func() { _ = conn.Close() }, err
	})
}

// openAll opens n connections at once, and gives them back when all are open.
func openAll(n int, open func() (giveBack func(), err error)) error {
	var (
		opening sync.WaitGroup
		errs    = make([]error, n)
		backs   = make([]func(), n)
	)
	for i := range n {
		opening.Go(func() { backs[i], errs[i] = open() })
	}
	opening.Wait()
	for i, back := range backs {
		if errs[i] == nil {
			back()
		}
	}
	return errors.Join(errs...)
}
