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

// Claim is a row of latchkey_claims for each claim, which counts while the lock is held
// that it names: a session's own. GET_LOCK knows no shared locks. Who comes to a class that has
// another print leaves that alone; of two that come at the same moment one at least sees
// the other when it looks again.
//
// What a call that failed may have left is given back by the next, or after an exchange: one that follows
// on it at once, as Held does, would have to wait, too.
func (s *session) Claim(wanted, dropped []dialect.Claim) (disputed []bool, err error) {
	err = s.errand(func(e errand) error {
		return e.withTables([]string{claimsTable}, func() (err error) {
			disputed, err = e.claim(wanted, slices.Concat(s.doubtful, dropped))
			return err
		})
	})
	if err != nil {
		s.doubt(dropped)
		s.doubt(wanted)
		return nil, err
	}
	s.doubtful = nil
	return disputed, nil
}

// doubt notes those of claims that may be in the table, and that the session has not.
func (s *session) doubt(claims []dialect.Claim) {
	for _, c := range claims {
		if _, ok := s.claims[c]; ok && !slices.Contains(s.doubtful, c) {
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
	if s.aside(func(e errand) error { return e.disclaim(s.doubtful) }) == nil {
		s.doubtful = nil
	}
	s.settled = time.Now()
}

func (e errand) claim(wanted, dropped []dialect.Claim) (disputed []bool, err error) {
	if err := e.disclaim(dropped); err != nil || len(wanted) == 0 {
		return nil, err
	}
	rows, err := e.living(wanted)
	if err != nil {
		return nil, err
	}
	disputed = make([]bool, len(wanted))
	var free []dialect.Claim
	for i, c := range wanted {
		if disputed[i] = disputes(rows, c); !disputed[i] {
			free = append(free, c)
		}
	}
	if len(free) == 0 {
		return disputed, nil
	}
	if err := e.insertClaims(free); err != nil {
		return nil, err
	}
	if rows, err = e.living(free); err != nil {
		return nil, err
	}
	var lost []dialect.Claim
	for i, c := range wanted {
		switch {
		case disputed[i]:
		case disputes(rows, c):
			disputed[i] = true
			lost = append(lost, c)
		case !slices.ContainsFunc(rows, func(r claimed) bool { return r.Claim == c && r.session == e.s.name }):
			return nil, errInterrupted // it did not get as far as our own row
		}
	}
	return disputed, e.disclaim(lost)
}

// disputes reports whether one of rows is of another print of c's class.
func disputes(rows []claimed, c dialect.Claim) bool {
	return slices.ContainsFunc(rows, func(r claimed) bool { return r.Class == c.Class && r.Print != c.Print })
}

func (e errand) insertClaims(claims []dialect.Claim) error {
	rows := make([]string, 0, len(claims))
	for _, c := range claims {
		rows = append(rows, fmt.Sprintf("(%d, %d, '%s')", c.Class, c.Print, e.s.name))
	}
	return e.transaction(func(e errand) error {
		_, err := e.change("INSERT", "IGNORE INTO latchkey_claims (class, print, session) VALUES "+strings.Join(rows, ", "))
		if err == nil { // and COMMIT follows, which may be carried out and not be answered
			for _, c := range claims {
				e.s.claims[c] = struct{}{}
			}
		}
		return err
	})
}

// disclaim gives back those of claims that may be in the table.
func (e errand) disclaim(claims []dialect.Claim) error {
	var rows []claimed
	for _, c := range claims {
		if _, ok := e.s.claims[c]; ok {
			rows = append(rows, claimed{Claim: c, session: e.s.name})
		}
	}
	if err := e.deleteClaims(rows); err != nil {
		return err
	}
	for _, c := range claims {
		delete(e.s.claims, c)
	}
	return nil
}

// deletedAtOnce is how many rows one statement deletes.
const deletedAtOnce = 100

// deleteClaims names each row by equalities, for which MySQL locks no others: for a list of
// rows in parentheses it would lock the table's.
func (e errand) deleteClaims(rows []claimed) error {
	for some := range slices.Chunk(rows, deletedAtOnce) {
		conditions := make([]string, 0, len(some))
		for _, r := range some {
			conditions = append(conditions, fmt.Sprintf("class = %d AND print = %d AND session = '%s'", r.Class, r.Print, r.session))
		}
		err := e.transaction(func(e errand) error {
			_, err := e.change("DELETE", "FROM latchkey_claims WHERE "+strings.Join(conditions, " OR "))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// living is the rows of the classes of claims whose sessions live. What dead ones have
// left there it deletes, unless others are at it.
func (e errand) living(claims []dialect.Claim) (rows []claimed, err error) {
	err = e.transaction(func(e errand) (err error) {
		rows, err = e.claimed(claims)
		return err
	})
	if err != nil {
		return nil, err
	}
	var dead []claimed
	rows = slices.DeleteFunc(rows, func(r claimed) bool {
		if !r.alive && r.ours() {
			dead = append(dead, r)
		}
		return !r.alive
	})
	if err := e.deleteClaims(dead); err != nil && !dialect.Survives(dialect.Fail(err)) {
		return nil, err
	}
	return rows, nil
}

// A claimed is a row of the table.
type claimed struct {
	dialect.Claim
	session string // the name of its lock
	alive   bool   // somebody has that
}

// ours reports whether the row's name is of a form of ours, and may be in a statement.
func (r claimed) ours() bool {
	return strings.HasPrefix(r.session, "latchkey.") && strings.Trim(r.session, "abcdefghijklmnopqrstuvwxyz0123456789.") == ""
}

// claimed is the rows of the classes of claims. The names in the table are our own, but
// a statement must not fail for one that is not: so those of other forms are nobody's.
func (e errand) claimed(claims []dialect.Claim) (all []claimed, err error) {
	classes := make([]string, 0, len(claims))
	for _, c := range claims {
		classes = append(classes, strconv.Itoa(int(c.Class)))
	}
	const always = 1 << 30 // the user's sql_select_limit does not count, then
	rows, err := e.conn.QueryContext(e.ctx, fmt.Sprintf("SELECT %s, class, print, session,"+
		" IF(session LIKE 'latchkey.%%', IS_USED_LOCK(session), NULL)"+
		" FROM (SELECT 1 AS one) AS always LEFT JOIN latchkey_claims ON class IN (%s) LIMIT %d", e.mine(), strings.Join(classes, ", "), always))
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
			all = append(all, claimed{dialect.Claim{Class: class.V, Print: hash.V}, session.String, owner.Valid})
		}
	}
	return all, rows.Err()
}
