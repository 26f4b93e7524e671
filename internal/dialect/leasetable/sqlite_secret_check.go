package leasetable

import (
	"context"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// checkSecrets keeps a row for each check. One transaction looks for conflicts
// and takes the check, so it need not look again.
func (t *sqliteTables) checkSecrets(ctx context.Context, s *stamp, wanted, dropped []dialect.SecretCheck) (conflicts []bool, err error) {
	err = t.renewed(ctx, s, func(tx *sqliteTx) {
		tx.reap(nil)
		tx.exec(`DELETE FROM main.latchkey_secret_checks WHERE session NOT IN (SELECT id FROM main.latchkey_sessions)`)
		for _, c := range dropped {
			tx.exec(`DELETE FROM main.latchkey_secret_checks WHERE class = ? AND fingerprint = ? AND session = ?`, c.Class, c.Fingerprint, s.id)
		}
		conflicts = make([]bool, len(wanted))
		for i, c := range wanted {
			if tx.err == nil {
				tx.err = tx.conn.QueryRowContext(tx.ctx, `SELECT EXISTS (SELECT 1 FROM main.latchkey_secret_checks WHERE class = ? AND fingerprint <> ?)`, c.Class, c.Fingerprint).
					Scan(&conflicts[i])
			}
			if !conflicts[i] {
				tx.exec(`INSERT INTO main.latchkey_secret_checks (class, fingerprint, session) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, c.Class, c.Fingerprint, s.id)
			}
		}
	})
	return conflicts, err
}
