package leasetable

import (
	"context"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// exchange releases in one statement and takes in the next. In one statement
// PostgreSQL would not see what another part has deleted, and CockroachDB
// rejects two changes of one table.
func (t *postgresTables) exchange(ctx context.Context, s *stamp, b *dialect.Batch, reserved *reservedTokens) error {
	if len(b.Release) > 0 {
		if err := t.release(ctx, s, b); err != nil {
			return err
		}
	}
	if len(b.Try)+len(b.Looks) > 0 {
		return t.take(ctx, s, b, reserved)
	}
	if len(b.Release) > 0 {
		return nil
	}
	return t.run(ctx, s, t.me(s)+alive)
}

// keyList are the keys of rows, as postgres.ParseKeys reads them.
const keyList = `coalesce(pg_catalog.string_agg(key_space::text || ',' || key_id::text, ','), '')`

// releaseQuery gives keys back, and releaseColumns is how many the session held.
const (
	releaseQuery = `, given AS (DELETE FROM SCHEMA.latchkey_locks
		WHERE session = (SELECT id FROM me) AND (key_space, key_id) IN (SELECT s, k FROM KEYS) RETURNING session)`
	releaseColumns = `, (SELECT pg_catalog.count(*) FROM given)`
)

// release gives back the keys of b.Release.
func (t *postgresTables) release(ctx context.Context, s *stamp, b *dialect.Batch) error {
	var given int
	err := t.run(ctx, s, t.me(s)+t.sql(s, releaseQuery+alive+releaseColumns, "KEYS", unnestKeys(b.Release)), &given)
	b.NotHeld = given < len(b.Release)
	return err
}

// take takes the free keys of b. It frees the keys of dead sessions once and
// then tries again. It also tries again if another session took a key, at the
// same moment, that a look had chosen.
func (t *postgresTables) take(ctx context.Context, s *stamp, b *dialect.Batch, reserved *reservedTokens) error {
	what := newTaking(b)
	for reaped := false; ; {
		stale, contested, err := t.takeOnce(ctx, s, what, reserved)
		if err != nil {
			return err
		}
		reap := stale && !reaped
		if !reap && !(contested && len(b.Looks) > 0) || len(what.missing()) == 0 {
			what.respond(b)
			return nil
		}
		if reap {
			if err := t.reap(ctx, s); err != nil {
				return err
			}
			reaped = true
		}
	}
}

// takeQuery inserts the first free keys of each look that wants more. Its columns
// are the keys that were taken, whether fewer were taken than chosen, and whether
// a key that is taken belongs to a dead session.
//
// It does not try to insert a key that has a row. So it never waits for a
// session that is just releasing one, and all sessions insert in one order.
const takeQuery = `,
	wanted AS (SELECT g, want, s, k, n FROM KEYS),
	ranked AS (SELECT want, s, k, n, row_number() OVER (PARTITION BY g ORDER BY n) AS rank FROM wanted, me
		WHERE NOT EXISTS (SELECT 1 FROM SCHEMA.latchkey_locks AS l WHERE l.key_space = s AND l.key_id = k)),
	free AS (SELECT s, k FROM ranked WHERE rank <= want),
	won AS (INSERT INTO SCHEMA.latchkey_locks (key_space, key_id, session, acquired)
		SELECT s, k, me.id, pg_catalog.clock_timestamp() FROM (SELECT DISTINCT s, k FROM free) AS f, me ORDER BY s, k
		ON CONFLICT (key_space, key_id) DO NOTHING RETURNING key_space, key_id)`

const takeColumns = `, (SELECT ` + keyList + ` FROM won),
	(SELECT pg_catalog.count(*) FROM free) > (SELECT pg_catalog.count(*) FROM won),
	EXISTS (SELECT 1 FROM wanted
		JOIN SCHEMA.latchkey_locks AS l ON l.key_space = s AND l.key_id = k
		LEFT JOIN SCHEMA.latchkey_sessions AS o ON o.id = l.session
		WHERE o.id IS NULL OR o.expires <= pg_catalog.clock_timestamp())`

// takeOnce carries out takeQuery.
func (t *postgresTables) takeOnce(ctx context.Context, s *stamp, what taking, reserved *reservedTokens) (stale, contested bool, err error) {
	var (
		won   string
		token = dialect.Token{Outlives: true}
		life  int64
	)
	dest := []any{&won, &contested, &stale}
	query, columns := takeQuery, takeColumns
	if t.logged {
		query += message(`(SELECT pg_catalog.count(*) AS n FROM won) AS w WHERE n > 0`) // after all that was won
		columns += messageColumns
		dest = append(dest, &token.System, &token.Epoch, &token.Number, &life)
	}
	if err := t.run(ctx, s, t.me(s)+t.sql(s, query+alive+columns, "KEYS", what.unnest()), dest...); err != nil {
		return false, false, err
	}
	if token.Number != 0 {
		token.Here = postgres.Here(life)
		reserved.reserve(token, messageSize)
	}
	keys, err := postgres.ParseKeys(won)
	if err == nil {
		err = what.took(keys)
	}
	return stale, contested, err
}
