package dialect

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Claim is a row of latchkey_claims for each claim, which counts while the lock is held
// that it names: a session's own. GET_LOCK knows no shared locks. Who comes to a class that has
// another print leaves that alone; of two that come at the same moment one at least sees
// the other when it looks again.
func (s *mysqlSession) Claim(wanted, dropped []Claim) (disputed []bool, err error) {
	disputed, err = s.claim(wanted, dropped)
	if err = Fail(err); err == nil || !survived(err) {
		return disputed, err
	}
	if again := s.disclaim(slices.Concat(dropped, wanted)); again != nil {
		return nil, &Failure{Kind: Gone, Reason: "claims could not be given back: " + errors.Join(err, Fail(again)).Error()}
	}
	return nil, err
}

func (s *mysqlSession) claim(wanted, dropped []Claim) (disputed []bool, err error) {
	if err := s.disclaim(dropped); err != nil || len(wanted) == 0 {
		return nil, err
	}
	rows, err := s.living(wanted)
	if err != nil {
		return nil, err
	}
	disputed = make([]bool, len(wanted))
	var free []Claim
	for i, c := range wanted {
		if disputed[i] = disputes(rows, c); !disputed[i] {
			free = append(free, c)
		}
	}
	if len(free) == 0 {
		return disputed, nil
	}
	if err := s.insertClaims(free); err != nil {
		return nil, err
	}
	if rows, err = s.living(free); err != nil {
		return nil, err
	}
	var lost []Claim
	for i, c := range wanted {
		switch {
		case disputed[i]:
		case disputes(rows, c):
			disputed[i] = true
			lost = append(lost, c)
		case !slices.ContainsFunc(rows, func(r claimed) bool { return r.Claim == c && r.session == s.name }):
			return nil, errInterrupted // it did not get as far as our own row
		}
	}
	return disputed, s.disclaim(lost)
}

// disputes reports whether one of rows is of another print of c's class.
func disputes(rows []claimed, c Claim) bool {
	return slices.ContainsFunc(rows, func(r claimed) bool { return r.Class == c.Class && r.Print != c.Print })
}

func (s *mysqlSession) insertClaims(claims []Claim) error {
	rows := make([]string, 0, len(claims))
	for _, c := range claims {
		s.claims[c] = struct{}{}
		rows = append(rows, s.claimRow(c, s.name))
	}
	_, err := s.conn.ExecContext(context.Background(), "INSERT IGNORE INTO latchkey_claims (class, print, session) VALUES "+strings.Join(rows, ", "))
	return err
}

// disclaim gives back those of claims that may be in the table.
func (s *mysqlSession) disclaim(claims []Claim) error {
	var rows []string
	for _, c := range claims {
		if _, ok := s.claims[c]; ok {
			rows = append(rows, s.claimRow(c, s.name))
		}
	}
	if err := s.deleteClaims(rows); err != nil {
		return err
	}
	for _, c := range claims {
		delete(s.claims, c)
	}
	return nil
}

func (s *mysqlSession) deleteClaims(rows []string) error {
	if len(rows) == 0 {
		return nil
	}
	_, err := s.conn.ExecContext(context.Background(), "DELETE FROM latchkey_claims WHERE (class, print, session) IN ("+strings.Join(rows, ", ")+")")
	return err
}

func (s *mysqlSession) claimRow(c Claim, session string) string {
	return "(" + strconv.Itoa(int(c.Class)) + ", " + strconv.Itoa(int(c.Print)) + ", '" + session + "')"
}

// living is the rows of the classes of claims whose sessions live. What dead ones have
// left there it deletes.
func (s *mysqlSession) living(claims []Claim) (rows []claimed, err error) {
	err = s.withTables(mysqlClaims, func() (err error) {
		rows, err = s.claimed(claims)
		return err
	})
	if err != nil {
		return nil, err
	}
	var dead []string
	rows = slices.DeleteFunc(rows, func(r claimed) bool {
		if !r.alive {
			dead = append(dead, s.claimRow(r.Claim, r.session))
		}
		return !r.alive
	})
	return rows, s.deleteClaims(dead)
}

// A claimed is a row of the table.
type claimed struct {
	Claim
	session string // the name of its lock
	alive   bool   // somebody has that
}

// claimed is the rows of the classes of claims. The names in the table are our own, but
// a statement must not fail for one that is not: so those of other forms are nobody's.
func (s *mysqlSession) claimed(claims []Claim) (all []claimed, err error) {
	classes := make([]string, 0, len(claims))
	for _, c := range claims {
		classes = append(classes, strconv.Itoa(int(c.Class)))
	}
	rows, err := s.conn.QueryContext(context.Background(), "SELECT "+mysqlCheckColumns+", class, print, session,"+
		" IF(session LIKE 'latchkey.%', IS_USED_LOCK(session), NULL)"+
		" FROM (SELECT 1 AS one) AS always LEFT JOIN latchkey_claims ON class IN ("+strings.Join(classes, ", ")+")")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var (
			checks      mysqlChecks
			class, hash sql.Null[int32]
			session     sql.NullString
			owner       sql.NullInt64
		)
		if err := rows.Scan(&checks.id, &checks.readOnly, &class, &hash, &session, &owner); err != nil {
			return nil, err
		}
		if err := checks.pass(s.id); err != nil {
			return nil, err
		}
		if session.Valid {
			all = append(all, claimed{Claim{class.V, hash.V}, session.String, owner.Valid})
		}
	}
	return all, rows.Err()
}

// withTables has f done, and once more when the table was missing that it needs and
// the statements have made it.
func (s *mysqlSession) withTables(statements string, f func() error) error {
	err := f()
	if number, _, _ := mysqlError(err); number != mysqlNoSuchTable {
		return err
	}
	for statement := range strings.SplitSeq(statements, ";\n") {
		if _, err := s.conn.ExecContext(context.Background(), statement); err != nil {
			return noTables(err)
		}
	}
	return f()
}

func noTables(err error) error {
	number, state, ok := mysqlError(err)
	if !ok {
		return err
	}
	failure := mysqlFailure(number, state)
	if failure.Kind == Statement && number != mysqlDenied { // which says so itself
		failure.Reason = "a table is missing and could not be made: run the statements of Schema(MySQL) once: " + failure.Reason
	}
	return failure
}
