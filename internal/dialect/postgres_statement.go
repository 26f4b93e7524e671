package dialect

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
)

// statements runs the session's statements on the driver's own connection, by
// the interfaces of database/sql/driver. Package database/sql would do the
// same, for a connection that many share: at one statement per call, its
// locking and conversions cost a few microseconds each time.
//
// It is for use within sql.Conn.Raw, by one goroutine at a time.
type statements struct {
	prepared [forms]driver.Stmt // made at first use; they end with the connection
	slices   bool               // the driver takes a []int64 for a bigint[], and sends it in binary: the server reads that in a third less time

	// memory for the next statement
	args    []driver.NamedValue
	numbers [len(parts)][]int64
	text    []byte
	row     [1 + len(parts)]driver.Value
}

// exchange runs the statement of b on conn and returns its row.
func (s *statements) exchange(conn driver.Conn, f form, b *Batch) ([]driver.Value, error) {
	background := context.Background() // see Session.Exchange
	if s.prepared[f] == nil {
		stmt, err := prepare(background, conn, f.query())
		if err != nil {
			return nil, err
		}
		s.prepared[f] = stmt
	}
	s.setArgs(f, b)
	row := s.row[:1+len(s.args)] // a column for each part, after the first
	return row, queryRow(background, s.prepared[f], s.args, row)
}

// setArgs makes the arguments of f, in the order of its parts.
func (s *statements) setArgs(f form, b *Batch) {
	s.args = s.args[:0]
	for i, part := range parts {
		if f&part.form == 0 {
			continue
		}
		keys, of := b.keysOf(part.form)
		arg := driver.NamedValue{Ordinal: len(s.args) + 1}
		switch {
		case part.form == tryAny:
			arg.Value = textOfGroups(b.Any)
		case f&single != 0:
			arg.Value = keys[0].ID
		case s.slices:
			s.numbers[i] = appendNumbers(s.numbers[i][:0], keys, of)
			arg.Value = s.numbers[i]
		default:
			s.text = appendText(s.text[:0], keys, of)
			arg.Value = string(s.text)
		}
		s.args = append(s.args, arg)
	}
}

// takesSlices reports whether the driver takes a []int64 for a parameter of
// type bigint[]. pgx does; lib/pq makes a text of it, which costs more than one
// of our own. It is asked, not assumed: the server has to see the numbers.
func takesSlices(ctx context.Context, conn driver.Conn) (bool, error) {
	checker, ok := conn.(driver.NamedValueChecker)
	if !ok {
		return false, nil
	}
	numbers := driver.NamedValue{Ordinal: 1, Value: []int64{1, -2, 1<<63 - 1, -1 << 63}}
	if err := checker.CheckNamedValue(&numbers); err != nil {
		return false, nil //nolint:nilerr // it does not
	}
	if _, ok := numbers.Value.([]int64); !ok {
		return false, nil
	}
	stmt, err := prepare(ctx, conn, "SELECT $1::bigint[] = '{1,-2,9223372036854775807,-9223372036854775808}'")
	if err != nil {
		return false, err
	}
	var row [1]driver.Value
	err = queryRow(ctx, stmt, []driver.NamedValue{numbers}, row[:])
	if closeErr := stmt.Close(); err == nil {
		err = closeErr
	}
	var failure *Failure
	if errors.As(Fail(err), &failure) && failure.Kind == Statement {
		return false, nil // it only said that it does
	}
	return err == nil && row[0] == true, err
}

func prepare(ctx context.Context, conn driver.Conn, query string) (driver.Stmt, error) {
	if c, ok := conn.(driver.ConnPrepareContext); ok {
		return c.PrepareContext(ctx, query)
	}
	return conn.Prepare(query)
}

// queryRow reads the one row of stmt into row.
func queryRow(ctx context.Context, stmt driver.Stmt, args []driver.NamedValue, row []driver.Value) error {
	rows, err := query(ctx, stmt, args)
	if err != nil {
		return err
	}
	err = rows.Next(row)
	if err == io.EOF {
		err = errNonsense
	}
	for i, column := range row {
		if b, ok := column.([]byte); ok { // the driver's memory, until Close
			row[i] = slices.Clone(b)
		}
	}
	if closeErr := rows.Close(); err == nil {
		err = closeErr
	}
	return err
}

func query(ctx context.Context, stmt driver.Stmt, args []driver.NamedValue) (driver.Rows, error) {
	if s, ok := stmt.(driver.StmtQueryContext); ok {
		return s.QueryContext(ctx, args)
	}
	values := make([]driver.Value, len(args))
	for i, arg := range args {
		values[i] = arg.Value
	}
	return stmt.Query(values) //nolint:staticcheck // what a driver without contexts has
}
