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

// Claim is a row of latchkey_secret_checks for each check, which counts while the lock is held
// that it names: a session's own. GET_LOCK knows no shared locks. Who comes to a class that has
// another fingerprint leaves that alone; of two that come at the same moment one at least sees
// the other when it looks again.
//
// What a call that failed may have left is given back by the next, or after an exchange: one that follows
// on it at once, as Held does, would have to wait, too.
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

// doubt notes those of checks that may be in the table, and that the session has not.
func (s *session) doubt(checks []dialect.SecretCheck) {
	for _, c := range checks {
		if _, ok := s.secrets[c]; ok && !slices.Contains(s.doubtful, c) {
			s.doubtful = append(s.doubtful, c)
		}
	}
}

// settlePause is how long after an attempt in vain exchanges make none.
const settlePause = 10 * time.Second

// settleDoubts gives back what is doubtful, if it can.
func (s *session) settleDoubts() {
	if len(s.doubtful) == 0 {
		return
	}
	if s.aside(func(tx sideTx) error { return tx.dropSecrets(s.doubtful) }) == nil {
		s.doubtful = nil
	}
	s.settled = time.Now()
}

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
			return nil, errInterrupted // it did not get as far as our own row
		}
	}
	return conflicts, tx.dropSecrets(lost)
}

// conflictsWith reports whether one of rows is of another fingerprint of c's class.
func conflictsWith(rows []secretRow, c dialect.SecretCheck) bool {
	return slices.ContainsFunc(rows, func(r secretRow) bool { return r.Class == c.Class && r.Fingerprint != c.Fingerprint })
}

func (tx sideTx) insertSecrets(checks []dialect.SecretCheck) error {
	rows := make([]string, 0, len(checks))
	for _, c := range checks {
		rows = append(rows, fmt.Sprintf("(%d, %d, '%s')", c.Class, c.Fingerprint, tx.s.name))
	}
	return tx.transaction(func(tx sideTx) error {
		_, err := tx.change("INSERT", "IGNORE INTO latchkey_secret_checks (class, fingerprint, session) VALUES "+strings.Join(rows, ", "))
		if err == nil { // and COMMIT follows, which may be carried out and not be answered
			for _, c := range checks {
				tx.s.secrets[c] = struct{}{}
			}
		}
		return err
	})
}

// dropSecrets gives back those of checks that may be in the table.
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

// deleteSecrets names each row by equalities, for which MySQL locks no others: for a list of
// rows in parentheses it would lock the table's.
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

// living is the rows of the classes of checks whose sessions live. What dead ones have
// left there it deletes, unless others are at it.
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
	session string // the name of its lock
	alive   bool   // somebody has that
}

// ours reports whether the row's name is of a form of ours, and may be in a statement.
func (r secretRow) ours() bool {
	return strings.HasPrefix(r.session, "latchkey.") && strings.Trim(r.session, "abcdefghijklmnopqrstuvwxyz0123456789.") == ""
}

// secretRow is the rows of the classes of checks. The names in the table are our own, but
// a statement must not fail for one that is not: so those of other forms are nobody's.
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
