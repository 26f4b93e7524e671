package leasetable

import (
	"context"
	"database/sql"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// checkSecrets keeps a row of class, fingerprint and session for each check.
//
// A session leaves a class alone that has another fingerprint. Of two sessions
// that come at the same moment, at least one sees the other when it looks
// again.
func (t *postgresTables) checkSecrets(ctx context.Context, s *stamp, wanted, dropped []dialect.SecretCheck) (conflicts []bool, err error) {
	checks := t.schema + "latchkey_secret_checks"
	if len(dropped) > 0 {
		err := t.run(ctx, s, t.me(s)+`, given AS (DELETE FROM `+checks+`
			WHERE session = (SELECT id FROM me) AND (class, fingerprint) IN (SELECT c, p FROM `+unnestChecks(dropped)+`) RETURNING class)`+alive)
		if err != nil {
			return nil, err
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	conflicts = make([]bool, len(wanted))
	seen := `, seen AS (SELECT n, c, p, EXISTS (SELECT 1 FROM ` + checks + ` AS o JOIN ` + t.schema + `latchkey_sessions AS owner ON owner.id = o.session
		WHERE o.class = c AND o.fingerprint <> p AND owner.expires > pg_catalog.clock_timestamp()) AS other FROM ` + unnestChecks(wanted) + `)`
	for _, act := range []string{
		`, taken AS (INSERT INTO ` + checks + ` (class, fingerprint, session) SELECT c, p, me.id FROM seen, me WHERE NOT other ORDER BY c, p
			ON CONFLICT (class, fingerprint, session) DO NOTHING RETURNING class)`,
		`, given AS (DELETE FROM ` + checks + ` WHERE session = (SELECT id FROM me) AND (class, fingerprint) IN (SELECT c, p FROM seen WHERE other) RETURNING class)`,
	} {
		var list sql.NullString
		if err := t.run(ctx, s, t.me(s)+seen+act+alive+`, (SELECT pg_catalog.string_agg(n::text, ',') FROM seen WHERE other)`, &list); err != nil {
			return nil, err
		}
		for _, i := range splitInts(list.String) {
			if i < 1 || i > int64(len(wanted)) {
				return nil, dialect.ErrNonsense
			}
			conflicts[i-1] = true
		}
	}
	return conflicts, nil
}
