package mysql

import (
	"database/sql"
	"fmt"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A secretRow is a row of latchkey_secret_checks: the use of a check by the
// session whose own lock has the name. The row counts while that lock is held.
type secretRow struct {
	dialect.SecretCheck
	session string
	alive   bool // the lock is held
}

// UseSecret implements dialect.Session.
func (s *session) UseSecret(c dialect.SecretCheck) (conflict bool, err error) {
	err = s.inSideTx(func(tx sideTx) error {
		return tx.withTables([]string{secretsTable}, func() (err error) {
			conflict, err = tx.useSecret(c)
			return err
		})
	})
	return conflict && err == nil, err
}

// DropSecret implements dialect.Session.
func (s *session) DropSecret(c dialect.SecretCheck) error {
	return s.inSideTx(func(tx sideTx) error {
		return tx.withTables([]string{secretsTable}, func() error { return tx.dropSecret(c) })
	})
}

// useSecret looks, inserts a row, and looks again. So a session with another
// secret does not disturb those that have one. Of two that come at the same
// moment, at least one sees the other.
//
// It inserts the row even if it has seen the row. An earlier DropSecret that
// failed may be about to delete it: INSERT IGNORE waits for that.
func (tx sideTx) useSecret(c dialect.SecretCheck) (conflict bool, err error) {
	conflict, mine, err := tx.look(c)
	if err == nil && !conflict {
		if err := tx.insertSecret(c); err != nil {
			return false, err
		}
		if conflict, mine, err = tx.look(c); err == nil && !mine {
			err = errInterrupted // the query did not get as far as our own row
		}
	}
	if err == nil && conflict && mine {
		err = tx.dropSecret(c)
	}
	return conflict, err
}

// look reports whether another session that lives uses the class of c with
// another fingerprint, and whether tx's own session has a row for c. It also
// deletes rows of dead sessions, unless other sessions are doing so.
func (tx sideTx) look(c dialect.SecretCheck) (conflict, mine bool, err error) {
	var rows, dead []secretRow
	err = tx.transaction(func(tx sideTx) (err error) {
		rows, err = tx.secretRows(c.Class)
		return err
	})
	if err != nil {
		return false, false, err
	}
	for _, r := range rows {
		switch {
		case r.SecretCheck == c && r.session == tx.s.name:
			mine = true
		case r.alive:
			conflict = conflict || r.SecretCheck != c
		case r.ours():
			dead = append(dead, r)
		}
	}
	if err := tx.deleteSecrets(dead); err != nil && !dialect.Survives(dialect.Fail(err)) {
		return false, false, err
	}
	return conflict, mine, nil
}

// insertSecret inserts the session's row for c.
func (tx sideTx) insertSecret(c dialect.SecretCheck) error {
	return tx.transaction(func(tx sideTx) error {
		_, err := tx.change("INSERT", fmt.Sprintf("IGNORE INTO latchkey_secret_checks (class, fingerprint, session) VALUES (%d, %d, '%s')",
			c.Class, c.Fingerprint, tx.s.name))
		return err
	})
}

// dropSecret deletes the session's row for c, if there is one.
func (tx sideTx) dropSecret(c dialect.SecretCheck) error {
	return tx.deleteSecrets([]secretRow{{SecretCheck: c, session: tx.s.name}})
}

// deleteSecrets deletes up to a hundred of rows. It names each one by
// equalities, so that MySQL locks no other rows. For a list of rows in
// parentheses it would lock the whole table.
func (tx sideTx) deleteSecrets(rows []secretRow) error {
	if len(rows) == 0 {
		return nil
	}
	var conditions []string
	for _, r := range rows[:min(len(rows), 100)] {
		conditions = append(conditions, fmt.Sprintf("class = %d AND fingerprint = %d AND session = '%s'", r.Class, r.Fingerprint, r.session))
	}
	return tx.transaction(func(tx sideTx) error {
		_, err := tx.change("DELETE", "FROM latchkey_secret_checks WHERE "+strings.Join(conditions, " OR "))
		return err
	})
}

// ours reports whether the name of the row's session has the form of our names.
// Only then may it be in a statement.
func (r secretRow) ours() bool {
	return strings.HasPrefix(r.session, "latchkey.") && strings.Trim(r.session, "abcdefghijklmnopqrstuvwxyz0123456789.") == ""
}

// secretRows returns the rows of a class. A name of another form must not make
// the statement fail, so it counts as the name of a dead session.
func (tx sideTx) secretRows(class int32) (all []secretRow, err error) {
	const always = 1 << 30 // the user's sql_select_limit does not count, then
	rows, err := tx.conn.QueryContext(tx.ctx, fmt.Sprintf("SELECT %s, fingerprint, session, IF(session LIKE 'latchkey.%%', IS_USED_LOCK(session), NULL)"+
		" FROM (SELECT 1 AS one) AS always LEFT JOIN latchkey_secret_checks ON class = %d LIMIT %d", tx.mine(), class, always))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var (
			mine        bool
			fingerprint sql.Null[int32]
			session     sql.NullString
			owner       sql.NullInt64
		)
		if err := rows.Scan(&mine, &fingerprint, &session, &owner); err != nil {
			return nil, err
		}
		if !mine {
			return nil, errElsewhere
		}
		if session.Valid {
			all = append(all, secretRow{dialect.SecretCheck{Class: class, Fingerprint: fingerprint.V}, session.String, owner.Valid})
		}
	}
	return all, rows.Err()
}
