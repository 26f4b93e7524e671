//go:build linux

package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A COMMIT that waits for a synchronous standby ends when the context of its
// transaction does. lib/pq cancels the COMMIT, and PostgreSQL then acknowledges
// it without the standby. pgx reports an error.
func TestCancelledCommit(t *testing.T) {
	c := pgtest.New(t)
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			db := dbtest.Open(t, driver, c.DSN(""))
			do := func(statement string) { t.Helper(); dbtest.Execute(t, db, statement) }
			do("CREATE TABLE " + driver + " ()")
			do("ALTER SYSTEM SET synchronous_standby_names = 'none'")
			do("SELECT pg_reload_conf()")
			defer func() {
				do("ALTER SYSTEM RESET synchronous_standby_names")
				do("SELECT pg_reload_conf()")
			}()
			lockertest.Eventually(t, "the setting is read", func() bool {
				var names string
				return db.QueryRowContext(t.Context(), "SHOW synchronous_standby_names").Scan(&names) == nil && names == "none"
			})

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			committed := make(chan error, 1)
			insert := func() {
				t.Helper()
				tx, err := db.BeginTx(ctx, nil)
				if err == nil {
					_, err = tx.ExecContext(t.Context(), "SET LOCAL synchronous_commit = on; INSERT INTO "+driver+" DEFAULT VALUES")
				}
				if err != nil {
					t.Fatal(err)
				}
				go func() { committed <- tx.Commit() }()
			}
			insert()
			lockertest.Eventually(t, "a COMMIT waits for a standby", func() bool {
				select {
				case err := <-committed: // the checkpointer had not read the setting, so that COMMIT did not wait
					if err != nil {
						t.Fatal(err)
					}
					insert()
				default:
				}
				var waits bool
				err := db.QueryRowContext(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')").Scan(&waits)
				return err == nil && waits
			})
			cancel()
			var err error
			select {
			case err = <-committed:
			case <-time.After(time.Minute):
				t.Fatal("Commit does not return")
			}
			if (err == nil) != (driver == "postgres") {
				t.Errorf("Commit returns %v", err)
			}
		})
	}
}
