package leasetable

import (
	"context"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// message is a part of a statement that writes an empty message to the write-
// ahead log, if from has a row. Its place there is a token.
func message(from string) string {
	return `,
	message AS MATERIALIZED (SELECT pg_catalog.pg_logical_emit_message(true, 'latchkey', '') AS lsn FROM ` + from + `)`
}

const (
	// messageColumns say where the message is: system, timeline, place, and
	// life of the server. They are 0 if there is none.
	messageColumns = `, coalesce((SELECT system_identifier FROM message, pg_catalog.pg_control_system()), 0),
		coalesce((SELECT ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(lsn), 8))::bit(32)::bigint FROM message), 0),
		coalesce((SELECT (lsn - '0/0')::bigint FROM message), 0), ` + postgres.Life

	// messageSize is less than a message takes in the write-ahead log, with its
	// header and prefix alone. So all places up to it belong to this message.
	messageSize = 48
)

// token implements tables.
func (t *postgresTables) token(ctx context.Context, s *stamp) (token dialect.Token, n int64, err error) {
	var life int64
	query, lifeOf := message("me")+alive+messageColumns, "0"
	if n = messageSize; !t.logged {
		query, n = counterQuery, 1
	}
	if t.genuine {
		lifeOf = postgres.Life
	}
	query = t.me(s) + t.sql(s, query, "RANDOM", postgresTypes.random, "LIFE", lifeOf)
	if err = t.run(ctx, s, query, &token.System, &token.Epoch, &token.Number, &life); err == nil && t.genuine {
		token.Here, token.Outlives = postgres.Here(life), true
	}
	return token, n, err
}

// counterQuery increments a counter that is never behind the clock, in
// microseconds. So tokens grow even if a failover has lost the last ones.
const counterQuery = `,
	counted AS (INSERT INTO SCHEMA.latchkey_tokens AS c (only_row, system, number)
		SELECT 1, RANDOM, (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000.0)::bigint FROM me
		ON CONFLICT (only_row) DO UPDATE SET number = greatest(c.number + 1, excluded.number) RETURNING system, number)` +
	alive + `, coalesce((SELECT system FROM counted), 0), 0, coalesce((SELECT number FROM counted), 0), LIFE`
