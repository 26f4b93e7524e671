package leasetable

import (
	"context"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// useSecret implements tables. One transaction looks and inserts the row, so it
// need not look again.
func (t *sqliteTables) useSecret(ctx context.Context, s *stamp, c dialect.SecretCheck) (conflict bool, err error) {
	err = t.renewed(ctx, s, func(tx *sqliteTx) {
		tx.reap(nil)
		tx.exec(`DELETE FROM main.latchkey_secret_checks WHERE session NOT IN (SELECT id FROM main.latchkey_sessions)`)
		if tx.err != nil {
			return
		}
		tx.err = tx.conn.QueryRowContext(tx.ctx, `SELECT EXISTS (SELECT 1 FROM main.latchkey_secret_checks WHERE class = ? AND fingerprint <> ?)`, c.Class, c.Fingerprint).
			Scan(&conflict)
		if conflict {
			tx.dropSecret(s, c)
			return
		}
		tx.exec(`INSERT INTO main.latchkey_secret_checks (class, fingerprint, session) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, c.Class, c.Fingerprint, s.id)
	})
	return conflict, err
}

// dropSecret implements tables.
func (t *sqliteTables) dropSecret(ctx context.Context, s *stamp, c dialect.SecretCheck) error {
	return t.renewed(ctx, s, func(tx *sqliteTx) { tx.dropSecret(s, c) })
}

func (tx *sqliteTx) dropSecret(s *stamp, c dialect.SecretCheck) {
	tx.exec(`DELETE FROM main.latchkey_secret_checks WHERE class = ? AND fingerprint = ? AND session = ?`, c.Class, c.Fingerprint, s.id)
}
