package leasetable

import (
	"context"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// claim disputes a claim if another print of its class is claimed.
func (t *sqliteTables) claim(ctx context.Context, s *stamp, wanted, dropped []dialect.Claim) (disputed []bool, err error) {
	err = t.renewed(ctx, s, func(tx *sqliteTx) {
		tx.reap(nil)
		tx.exec(`DELETE FROM main.latchkey_claims WHERE session NOT IN (SELECT id FROM main.latchkey_sessions)`)
		for _, c := range dropped {
			tx.exec(`DELETE FROM main.latchkey_claims WHERE class = ? AND print = ? AND session = ?`, c.Class, c.Print, s.id)
		}
		disputed = make([]bool, len(wanted))
		for i, c := range wanted {
			if tx.err == nil {
				tx.err = tx.conn.QueryRowContext(tx.ctx, `SELECT EXISTS (SELECT 1 FROM main.latchkey_claims WHERE class = ? AND print <> ?)`, c.Class, c.Print).
					Scan(&disputed[i])
			}
			if !disputed[i] {
				tx.exec(`INSERT INTO main.latchkey_claims (class, print, session) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, c.Class, c.Print, s.id)
			}
		}
	})
	return disputed, err
}
