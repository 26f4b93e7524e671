package leasetable

import (
	"context"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// useSecret implements tables. A use is a row of class, fingerprint and session.
//
// The first statement looks, and inserts the row. The second one looks again,
// and deletes the row if there is a conflict. So a session with another secret
// does not disturb those that have one. Of two that come at the same moment, at
// least one sees the other.
func (t *postgresTables) useSecret(ctx context.Context, s *stamp, c dialect.SecretCheck) (conflict bool, err error) {
	checks := t.schema + "latchkey_secret_checks"
	seen := fmt.Sprintf(`, seen AS (SELECT EXISTS (SELECT 1 FROM %s AS o JOIN %slatchkey_sessions AS owner ON owner.id = o.session
		WHERE o.class = %d AND o.fingerprint <> %d AND owner.expires > pg_catalog.clock_timestamp()) AS other)`, checks, t.schema, c.Class, c.Fingerprint)
	taken := fmt.Sprintf(`, taken AS (INSERT INTO %s (class, fingerprint, session) SELECT %d, %d, me.id FROM seen, me WHERE NOT other
		ON CONFLICT (class, fingerprint, session) DO NOTHING RETURNING class)`, checks, c.Class, c.Fingerprint)
	for _, act := range []string{taken, t.givenBack(c, " AND (SELECT other FROM seen)")} {
		var other bool
		if err := t.run(ctx, s, t.me(s)+seen+act+alive+", (SELECT other FROM seen)", &other); err != nil {
			return false, err
		}
		conflict = conflict || other
	}
	return conflict, nil
}

// dropSecret implements tables.
func (t *postgresTables) dropSecret(ctx context.Context, s *stamp, c dialect.SecretCheck) error {
	return t.run(ctx, s, t.me(s)+t.givenBack(c, "")+alive)
}

// givenBack deletes the session's row for c, on a further condition.
func (t *postgresTables) givenBack(c dialect.SecretCheck, condition string) string {
	return fmt.Sprintf(`, given AS (DELETE FROM %slatchkey_secret_checks
		WHERE session = (SELECT id FROM me) AND class = %d AND fingerprint = %d%s RETURNING class)`, t.schema, c.Class, c.Fingerprint, condition)
}
