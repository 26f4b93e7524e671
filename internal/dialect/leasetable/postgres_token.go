package leasetable

import (
	"context"
	"database/sql"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// message is a part of a statement that writes an empty message to the write-ahead log, if from
// has a row, as tokenQuery does.
func message(from string) string {
	return `,
	message AS MATERIALIZED (SELECT pg_catalog.pg_logical_emit_message(true, 'latchkey', '') AS lsn FROM ` + from + `)`
}

const (
	// messageColumns are where that is: system, timeline, place, and the life of the server.
	messageColumns = `, (SELECT system_identifier FROM message, pg_catalog.pg_control_system()),
		(SELECT ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(lsn), 8))::bit(32)::bigint FROM message), (SELECT (lsn - '0/0')::bigint FROM message), ` + postgres.Life

	// messageSize is less than a message takes in the write-ahead log, its header and prefix alone:
	// the places from that of one message on are nobody else's.
	messageSize = 48
)

func (t *postgresTables) token(ctx context.Context, s *stamp) (token dialect.Token, n int64, err error) {
	var life int64
	dest := nullable([]any{&token.System, &token.Epoch, &token.Number, &life})
	var query string
	if t.logged {
		query, n = t.me(s)+message("me")+alive+messageColumns, messageSize
	} else {
		query, n = t.counterQuery(s), 1
	}
	if err = t.run(ctx, s, query, dest...); err == nil && t.genuine {
		token.Here, token.Outlives = postgres.Here(life), true
	}
	return token, n, err
}

// counterQuery draws from a counter that is never behind the clock, in
// microseconds. If a failover loses the last tokens, the next ones are greater all
// the same.
func (t *postgresTables) counterQuery(s *stamp) string {
	life := "0"
	if t.genuine {
		life = postgres.Life
	}
	counter := t.schema + "latchkey_tokens"
	return t.me(s) + `,
	counted AS (INSERT INTO ` + counter + ` AS c (only_row, system, number)
		SELECT 1, ` + postgresTypes.random + `, (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000.0)::bigint FROM me
		ON CONFLICT (only_row) DO UPDATE SET number = greatest(c.number + 1, excluded.number) RETURNING system, number)` +
		alive + `, (SELECT system FROM counted), 0, (SELECT number FROM counted), ` + life
}

// nullable is where numbers go that are NULL if the session has expired.
func nullable(numbers []any) []any {
	for i, n := range numbers {
		numbers[i] = &orNull{n.(*int64)}
	}
	return numbers
}

type orNull struct{ n *int64 }

func (o *orNull) Scan(value any) error {
	var v sql.NullInt64
	err := v.Scan(value)
	*o.n = v.Int64
	return err
}
