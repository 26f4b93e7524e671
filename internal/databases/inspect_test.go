package databases

import (
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// Inspect and Watch fail at once on a database without PostgreSQL's advisory
// locks.
func TestInspectIsForPostgreSQL(t *testing.T) {
	for name, orders := range map[string]func(*testing.T) lockertest.Orders{
		"SQLite": sqlite, "MariaDB": mariadb,
		"an unknown server": func(t *testing.T) lockertest.Orders {
			return lockertest.Orders{Driver: "pgx", DSN: inExecMode(unknownServer(t))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := orders(t)
			db := open(t, o.Driver, o.DSN)
			if s, err := lockwatch.Inspect(t.Context(), db); !errors.Is(err, errors.ErrUnsupported) || s != nil {
				t.Errorf("Inspect: %v", err)
			}
			if err := lockwatch.Watch(t.Context(), db, nil, lockwatch.WithInterval(time.Hour)); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("Watch: %v", err)
			}
		})
	}
}

// Inspect works through a transaction pooler.
func TestInspectBehindPgBouncer(t *testing.T) {
	t.Parallel()
	pooled := open(t, "pgx", inExecMode(throughPgBouncer(t)))
	tx, err := pooled.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := sqllock.TryTx(t.Context(), tx, sqllock.ID(-4)); err != nil {
		t.Fatal(err)
	}
	s, err := lockwatch.Inspect(t.Context(), pooled)
	if err != nil {
		t.Fatal(err)
	}
	if holders, _ := s.Find(sqllock.ID(-4)); len(holders) != 1 || holders[0].Process.PID == 0 {
		t.Errorf("holders: %+v", holders)
	}
}
