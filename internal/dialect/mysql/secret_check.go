package mysql

import (
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// CheckSecrets implements dialect.Session. Each check is a row of
// latchkey_secret_checks with the name of the session's own lock. The row
// counts while that lock is held.
//
// A session leaves a class alone that has another fingerprint. Of two sessions
// that come at the same moment, at least one sees the other when it looks
// again.
//
// The next call, or an exchange, gives back what a failed call may have left.
// Held does not, since it would have to wait as well.
func (s *session) CheckSecrets(wanted, dropped []dialect.SecretCheck) (conflicts []bool, err error) {
	err = s.inSideTx(func(tx sideTx) error {
		return tx.withTables([]string{secretsTable}, func() (err error) {
			conflicts, err = tx.checkSecrets(wanted, slices.Concat(s.doubtful, dropped))
			return err
		})
	})
	if err != nil {
		s.doubt(dropped)
		s.doubt(wanted)
		return nil, err
	}
	s.doubtful = nil
	return conflicts, nil
}

// doubt notes the checks that may be in the table although the session does not
// hold them.
func (s *session) doubt(checks []dialect.SecretCheck) {
	for _, c := range checks {
		if _, ok := s.secrets[c]; ok && !slices.Contains(s.doubtful, c) {
			s.doubtful = append(s.doubtful, c)
		}
	}
}

// dropPause is the least time between two attempts of exchange to drop doubtful
// checks.
const dropPause = 10 * time.Second

// dropDoubtful gives the doubtful checks back, if it can.
func (s *session) dropDoubtful() {
	if len(s.doubtful) == 0 {
		return
	}
	if s.aside(func(tx sideTx) error { return tx.dropSecrets(s.doubtful) }) == nil {
		s.doubtful = nil
	}
	s.triedToDrop = time.Now()
}

// checkSecrets is CheckSecrets on the connection of tx.
func (tx sideTx) checkSecrets(wanted, dropped []dialect.SecretCheck) (conflicts []bool, err error) {
	if err := tx.dropSecrets(dropped); err != nil || len(wanted) == 0 {
		return nil, err
	}
	rows, err := tx.living(wanted)
	if err != nil {
		return nil, err
	}
	conflicts = make([]bool, len(wanted))
	var free []dialect.SecretCheck
	for i, c := range wanted {
		if conflicts[i] = conflictsWith(rows, c); !conflicts[i] {
			free = append(free, c)
		}
	}
	if len(free) == 0 {
		return conflicts, nil
	}
	if err := tx.insertSecrets(free); err != nil {
		return nil, err
	}
	if rows, err = tx.living(free); err != nil {
		return nil, err
	}
	var lost []dialect.SecretCheck
	for i, c := range wanted {
		switch {
		case conflicts[i]:
		case conflictsWith(rows, c):
			conflicts[i] = true
			lost = append(lost, c)
		case !slices.ContainsFunc(rows, func(r secretRow) bool { return r.SecretCheck == c && r.session == tx.s.name }):
			return nil, errInterrupted // the query did not get as far as our own row
		}
	}
	return conflicts, tx.dropSecrets(lost)
}

// conflictsWith reports whether one of rows has the class of c and another
// fingerprint.
func conflictsWith(rows []secretRow, c dialect.SecretCheck) bool {
	return slices.ContainsFunc(rows, func(r secretRow) bool { return r.Class == c.Class && r.Fingerprint != c.Fingerprint })
}

// insertSecrets inserts a row for each check.
func (tx sideTx) insertSecrets(checks []dialect.SecretCheck) error {
	rows := make([]string, 0, len(checks))
	for _, c := range checks {
		rows = append(rows, fmt.Sprintf("(%d, %d, '%s')", c.Class, c.Fingerprint, tx.s.name))
	}
	return tx.transaction(func(tx sideTx) error {
		_, err := tx.change("INSERT", "IGNORE INTO latchkey_secret_checks (class, fingerprint, session) VALUES "+strings.Join(rows, ", "))
		if err == nil { // COMMIT follows, whose response may get lost
			for _, c := range checks {
				tx.s.secrets[c] = struct{}{}
			}
		}
		return err
	})
}

// dropSecrets deletes the rows of checks that may be in the table.
func (tx sideTx) dropSecrets(checks []dialect.SecretCheck) error {
	var rows []secretRow
	for _, c := range checks {
		if _, ok := tx.s.secrets[c]; ok {
			rows = append(rows, secretRow{SecretCheck: c, session: tx.s.name})
		}
	}
	if err := tx.deleteSecrets(rows); err != nil {
		return err
	}
	for _, c := range checks {
		delete(tx.s.secrets, c)
	}
	return nil
}

// deletedAtOnce is how many rows one statement deletes.
const deletedAtOnce = 100

// deleteSecrets names each row by equalities, so that MySQL locks no other
// rows. For a list of rows in parentheses it would lock the whole table.
func (tx sideTx) deleteSecrets(rows []secretRow) error {
	for some := range slices.Chunk(rows, deletedAtOnce) {
		conditions := make([]string, 0, len(some))
		for _, r := range some {
			conditions = append(conditions, fmt.Sprintf("class = %d AND fingerprint = %d AND session = '%s'", r.Class, r.Fingerprint, r.session))
		}
		err := tx.transaction(func(tx sideTx) error {
			_, err := tx.change("DELETE", "FROM latchkey_secret_checks WHERE "+strings.Join(conditions, " OR "))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// living returns the rows of live sessions for the classes of checks. It
// deletes rows of dead sessions, unless other sessions are doing so.
func (tx sideTx) living(checks []dialect.SecretCheck) (rows []secretRow, err error) {
	err = tx.transaction(func(tx sideTx) (err error) {
		rows, err = tx.secretRows(checks)
		return err
	})
	if err != nil {
		return nil, err
	}
	var dead []secretRow
	rows = slices.DeleteFunc(rows, func(r secretRow) bool {
		if !r.alive && r.ours() {
			dead = append(dead, r)
		}
		return !r.alive
	})
	if err := tx.deleteSecrets(dead); err != nil && !dialect.Survives(dialect.Fail(err)) {
		return nil, err
	}
	return rows, nil
}

// A secretRow is a row of the table.
type secretRow struct {
	dialect.SecretCheck
	session string // the name of its own lock
	alive   bool   // that lock is held
}

// ours reports whether the name of the row's session has the form of our names.
// Only then may it be in a statement.
func (r secretRow) ours() bool {
	return strings.HasPrefix(r.session, "latchkey.") && strings.Trim(r.session, "abcdefghijklmnopqrstuvwxyz0123456789.") == ""
}

// secretRows returns the rows for the classes of checks. A name of another form
// must not make the statement fail, so it counts as the name of a dead session.
func (tx sideTx) secretRows(checks []dialect.SecretCheck) (all []secretRow, err error) {
	classes := make([]string, 0, len(checks))
	for _, c := range checks {
		classes = append(classes, strconv.Itoa(int(c.Class)))
	}
	const always = 1 << 30 // the user's sql_select_limit does not count, then
	rows, err := tx.conn.QueryContext(tx.ctx, fmt.Sprintf("SELECT %s, class, fingerprint, session,"+
		" IF(session LIKE 'latchkey.%%', IS_USED_LOCK(session), NULL)"+
		" FROM (SELECT 1 AS one) AS always LEFT JOIN latchkey_secret_checks ON class IN (%s) LIMIT %d", tx.mine(), strings.Join(classes, ", "), always))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var (
			mine        bool
			class, hash sql.Null[int32]
			session     sql.NullString
			owner       sql.NullInt64
		)
		if err := rows.Scan(&mine, &class, &hash, &session, &owner); err != nil {
			return nil, err
		}
		if !mine {
			return nil, errElsewhere
		}
		if session.Valid {
			all = append(all, secretRow{dialect.SecretCheck{Class: class.V, Fingerprint: hash.V}, session.String, owner.Valid})
		}
	}
	return all, rows.Err()
}
