package postgres

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// InspectAgain is Inspect for a database in which an earlier Inspection has found
// the tables of r. It needs one query. It fails if the server is a standby now.
//
// After a failure of kind Statement the tables may have changed: use Inspect.
func (r Registry) InspectAgain(ctx context.Context, conn *sql.Conn) (*Inspection, error) {
	if err := Tidy(ctx, conn); err != nil {
		return nil, dialect.Fail(err)
	}
	text, err := readWithoutChange(ctx, conn, "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN '' ELSE ("+r.inspectQuery()+") END")
	switch {
	case err != nil:
		return nil, dialect.Fail(err)
	case text == "":
		return nil, dialect.Refuse("this is a standby now, whose advisory locks are its own: ask the primary (target_session_attrs=read-write)")
	}
	i := &Inspection{Registry: r}
	if err := json.Unmarshal([]byte(text), i); err != nil {
		return nil, foreignTable("")
	}
	return i, nil
}
