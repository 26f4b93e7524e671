package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// answerLength is the least number of bytes in RoundTrip's answer.
const answerLength = 200

// RoundTrip returns how long another client in m's network takes to connect to
// the server and get an answer of at least 200 bytes.
func (f *Fleet) RoundTrip(ctx context.Context, m *Member) (took time.Duration, err error) {
	u := *f.server
	u.Host = m.Proxy.Addr()
	begin := time.Now()
	conn, err := pgx.Connect(ctx, u.String())
	if err != nil {
		return 0, fmt.Errorf("fleet: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	var answer string
	if err := conn.QueryRow(ctx, "SELECT repeat('x', $1)", answerLength).Scan(&answer); err != nil {
		return 0, fmt.Errorf("fleet: %w", err)
	}
	return time.Since(begin), nil
}
