package databases

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Features that only PostgreSQL has return ErrNotExclusive on another database.
// No limiter fails open on that error.
func TestAdvisoryLocksElsewhere(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		if o.Driver != "sqlite" && o.Driver != "mysql" {
			t.Skip("has advisory locks")
		}
		db := open(t, o.Driver, o.DSN)
		tx, err := db.BeginTx(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		conn, err := open(t, o.Driver, o.DSN).Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for name, call := range map[string]func() error{
			"TryTx":  func() error { return sqllock.TryTx(t.Context(), tx, sqllock.ID(1)) },
			"LockTx": func() error { return sqllock.LockTx(t.Context(), tx, sqllock.ID(1), time.Second) },
			"OnConn": func() error { _, err := sqllock.OnConn(conn).TryLock(t.Context(), sqllock.ID(1)); return err },
			"PerTx":  func() error { _, err := sqllock.PerTx(db).TryLock(t.Context(), sqllock.ID(1)); return err },
			"WithDialect(PostgreSQL)": func() error {
				s, err := sqllock.Open(t.Context(), db, sqllock.WithDialect(sqllock.PostgreSQL))
				if err == nil {
					_ = s.Close()
				}
				return err
			},
		} {
			if err := call(); !errors.Is(err, sqllock.ErrNotExclusive) || errors.Is(err, sqllock.ErrUnavailable) {
				t.Errorf("%s: %v, want ErrNotExclusive", name, err)
			}
		}
	})
}
