package postgres

import (
	"context"
	"database/sql/driver"
	"io"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// statements sends the session's statements on the driver's own connection, by
// the interfaces of database/sql/driver.
//
// database/sql would do the same for a connection that many goroutines share.
// Its locking and conversions cost a few microseconds per statement.
//
// Invariant: it is used within sql.Conn.Raw, by one goroutine at a time.
type statements struct {
	ctx      context.Context      //nolint:containedctx // no caller's: see Session.Exchange
	prepared map[form]driver.Stmt // made at first use; they end with the connection

	// memory for the next statement
	text []byte
	row  [1 + 4]driver.Value // a column for each part, after the first
}

// exchange sends the statement for b, which has this form, on conn, and returns
// the row.
//
// Only a statement that was prepared before a reset of the session notices it. So
// that of a heartbeat, which has no part, is prepared before the first lock.
func (s *statements) exchange(conn driver.Conn, b *dialect.Batch, f form) ([]driver.Value, error) {
	for _, needed := range [...]form{0, f} {
		if s.prepared[needed] != nil {
			continue
		}
		stmt, err := s.prepare(conn, needed.query())
		if err != nil {
			return nil, err
		}
		if s.prepared == nil {
			s.prepared = make(map[form]driver.Stmt)
		}
		s.prepared[needed] = stmt
	}
	args := s.argsOf(f, b)
	row := s.row[:1+len(args)]
	return row, s.queryRow(s.prepared[f], args, row)
}

// argsOf returns the arguments of f in the order of its parts. The slice is new
// each time, since a driver's wrapper may keep it for its traces.
func (s *statements) argsOf(f form, b *dialect.Batch) []driver.NamedValue {
	args := make([]driver.NamedValue, 0, len(parts))
	for _, part := range parts {
		if f&part.form == 0 {
			continue
		}
		arg := driver.NamedValue{Ordinal: len(args) + 1}
		if f&single != 0 {
			arg.Value = singleKey(b).ID
		} else {
			s.text = part.text(s.text[:0], b)
			arg.Value = string(s.text)
		}
		args = append(args, arg)
	}
	return args
}

// prepare prepares query on conn.
func (s *statements) prepare(conn driver.Conn, query string) (driver.Stmt, error) {
	if c, ok := conn.(driver.ConnPrepareContext); ok {
		return c.PrepareContext(s.ctx, query)
	}
	return conn.Prepare(query)
}

// queryRow reads the one row of stmt into row.
func (s *statements) queryRow(stmt driver.Stmt, args []driver.NamedValue, row []driver.Value) error {
	rows, err := s.query(stmt, args)
	if err != nil {
		return err
	}
	err = rows.Next(row)
	switch err {
	case nil:
		for i, column := range row {
			if b, ok := column.([]byte); ok { // the driver's memory, until Close
				row[i] = string(b)
			}
		}
	case io.EOF:
		err = dialect.ErrNonsense
	}
	if closeErr := rows.Close(); err == nil {
		err = closeErr
	}
	return err
}

// query sends stmt.
func (s *statements) query(stmt driver.Stmt, args []driver.NamedValue) (driver.Rows, error) {
	if stmt, ok := stmt.(driver.StmtQueryContext); ok {
		return stmt.QueryContext(s.ctx, args)
	}
	values := make([]driver.Value, len(args))
	for i, arg := range args {
		values[i] = arg.Value
	}
	//lint:ignore SA1019 what a driver without contexts has
	return stmt.Query(values)
}
