package watermark

import (
	"github.com/latchkey-go/latchkey/internal/dialect/usertx"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Schema returns the statement that creates the table latchkey_watermarks in a
// database of kind d. Run it in a migration. Its form is that of
// [sqllock.Schema].
//
// Nothing else creates the table. On PostgreSQL the search_path of the
// transactions must find it, and all that use a key must find the same one.
// Their role needs INSERT, SELECT and UPDATE on it.
//
// A watermark is as durable as the commit. With synchronous_commit = off a
// crash of the server may undo the last ones, and the work behind them is done
// again.
//
// The table has a row for each key that was ever advanced. A row may be deleted
// once no caller will ask again for a number as low as its own.
//
// Schema panics if d is not a constant of sqllock.
func Schema(d sqllock.Dialect) []string {
	s := usertx.WatermarkSchema()
	switch d {
	case sqllock.PostgreSQL:
		return s.PostgreSQL
	case sqllock.SQLite:
		return s.SQLite
	case sqllock.MySQL:
		return s.MySQL
	}
	panic("watermark: there is no schema for the dialect " + string(d))
}
