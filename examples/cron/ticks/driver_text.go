package main

import (
	"context"
	"errors"

	"github.com/latchkey-go/latchkey/sqllock"
)

// withoutDriverText is err without the driver's text, which may name hosts and users: sqllock.ErrUnavailable, the context's
// error, or the server's SQLSTATE.
func withoutDriverText(err error) error {
	var coded interface{ SQLState() string }
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	case errors.As(err, &coded):
		return errors.New("SQLSTATE " + coded.SQLState())
	}
	return sqllock.ErrUnavailable
}
