package fleet

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// answerLength is the least number of bytes in RoundTrip's answer.
const answerLength = 200

// RoundTrip returns how long another client in m's network takes to connect to
// the server and get an answer of at least 200 bytes.
func (f *Fleet) RoundTrip(ctx context.Context, m *Member) (took time.Duration, err error) {
	begin := time.Now()
	db, err := sql.Open(m.Driver, m.Process.Config.DSN)
	if err != nil {
		return 0, fmt.Errorf("fleet: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var answer string
	if err := db.QueryRowContext(ctx, fmt.Sprintf("SELECT repeat('x', %d)", answerLength)).Scan(&answer); err != nil {
		return 0, fmt.Errorf("fleet: %w", err)
	}
	return time.Since(begin), nil
}
