package databases

import (
	"database/sql"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// Each statement of a schema runs alone and can be repeated, without any
// setting of the driver. The tables serve a Session, a Fence and a watermark.
func TestSchemaRunsStatementByStatement(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		d      sqllock.Dialect
		orders func(*testing.T) lockertest.Orders
	}{{sqllock.SQLite, sqlite}, {sqllock.MySQL, mariadb}} {
		t.Run(string(tt.d), func(t *testing.T) {
			t.Parallel()
			o := tt.orders(t)
			db := open(t, o.Driver, o.DSN)
			schemas := [][]string{
				sqllock.Schema(tt.d), sqllock.FenceSchema(tt.d), watermark.Schema(tt.d), lockwatch.Schema(tt.d),
			}
			create(t, db, schemas...)
			create(t, db, schemas...)
			for _, schema := range schemas {
				for _, statement := range schema {
					prepareAndRun(t, db, statement)
				}
			}
			if n := number(t, db, "SELECT count(*) FROM latchkey_tokens"); n != 1 {
				t.Errorf("%d rows of tokens, want 1", n)
			}
			execute(t, db, "CREATE TABLE work (who INTEGER)")
			locks := process(t, o)
			if got := locks.Dialect(); got != tt.d {
				t.Errorf("Dialect: %q", got)
			}
			if err := fencedWork(t, db, mustLock(t, locks, sqllock.ID(1)), 1); err != nil {
				t.Errorf("Fence: %v", err)
			}
			if err := markedWork(t, db, 1); err != nil {
				t.Errorf("Advance: %v", err)
			}
		})
	}
}

// prepareAndRun sends a statement in a way that rejects two statements in one
// string.
func prepareAndRun(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	prepared, err := db.Prepare(statement)
	if err != nil {
		t.Fatalf("%.60s…: %v", statement, err)
	}
	defer prepared.Close()
	if _, err := prepared.Exec(); err != nil {
		t.Errorf("%.60s…: %v", statement, err)
	}
}
