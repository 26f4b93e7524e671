package leasetable

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// claim is a row of class, print and session for each claim. Who comes
// to a class that has another print leaves that alone; of two that come at the
// same moment one at least sees the other when it looks again.
func (t *postgresTables) claim(ctx context.Context, s *stamp, wanted, dropped []dialect.Claim) (disputed []bool, err error) {
	claims := t.schema + "latchkey_claims"
	if len(dropped) > 0 {
		err := t.run(ctx, s, t.me(s)+`, given AS (DELETE FROM `+claims+`
			WHERE session = (SELECT id FROM me) AND (class, print) IN (SELECT c, p FROM `+unnestClaims(dropped)+`) RETURNING class)`+alive)
		if err != nil {
			return nil, err
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	disputed = make([]bool, len(wanted))
	seen := `, seen AS (SELECT n, c, p, EXISTS (SELECT 1 FROM ` + claims + ` AS o JOIN ` + t.schema + `latchkey_sessions AS owner ON owner.id = o.session
		WHERE o.class = c AND o.print <> p AND owner.expires > pg_catalog.clock_timestamp()) AS other FROM ` + unnestClaims(wanted) + `)`
	for _, act := range []string{
		`, taken AS (INSERT INTO ` + claims + ` (class, print, session) SELECT c, p, me.id FROM seen, me WHERE NOT other ORDER BY c, p
			ON CONFLICT (class, print, session) DO NOTHING RETURNING class)`,
		`, given AS (DELETE FROM ` + claims + ` WHERE session = (SELECT id FROM me) AND (class, print) IN (SELECT c, p FROM seen WHERE other) RETURNING class)`,
	} {
		var list sql.NullString
		if err := t.run(ctx, s, t.me(s)+seen+act+alive+`, (SELECT pg_catalog.string_agg(n::text, ',') FROM seen WHERE other)`, &list); err != nil {
			return nil, err
		}
		for _, i := range splitInts(list.String) {
			if i < 1 || i > int64(len(wanted)) {
				return nil, dialect.ErrNonsense
			}
			disputed[i-1] = true
		}
	}
	return disputed, nil
}

func unnestClaims(claims []dialect.Claim) string {
	classes, prints := make([]string, len(claims)), make([]string, len(claims))
	for i, c := range claims {
		classes[i], prints[i] = strconv.Itoa(int(c.Class)), strconv.Itoa(int(c.Print))
	}
	return "unnest('{" + strings.Join(classes, ",") + "}'::int[], '{" + strings.Join(prints, ",") + "}'::int[]) WITH ORDINALITY AS u (c, p, n)"
}
