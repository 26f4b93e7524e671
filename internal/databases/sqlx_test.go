package databases

import (
	"errors"
	"testing"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The pool of an sqlx.DB opens a Session. Locks can be acquired directly on its
// Conn and Tx.
func TestSqlx(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			db := sqlx.NewDb(open(t, driver, pgtest.Database(t)), driver)
			s, err := sqllock.Open(t.Context(), db.DB)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			conn, err := db.Connx(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			tx := db.MustBegin()
			defer tx.Rollback()

			key := sqllock.Namespace("sqlx").Key("user-1")
			takers := []struct {
				name string
				take func() (release func() error, err error)
			}{
				{"Session", func() (func() error, error) { return unlocker(s.TryLock(t.Context(), key)) }},
				{"Conn", func() (func() error, error) { return unlocker(sqllock.OnConn(conn.Conn).TryLock(t.Context(), key)) }},
				{"Tx", func() (func() error, error) { return tx.Rollback, sqllock.TryTx(t.Context(), tx, key) }},
			}
			for i, taker := range takers {
				release, err := taker.take()
				if err != nil {
					t.Fatalf("%s: %v", taker.name, err)
				}
				for j, other := range takers {
					if i == j {
						continue
					}
					if _, err := other.take(); !errors.Is(err, sqllock.ErrHeld) {
						t.Errorf("%s while %s holds: %v, want ErrHeld", other.name, taker.name, err)
					}
				}
				if err := release(); err != nil {
					t.Errorf("%s: release: %v", taker.name, err)
				}
			}
		})
	}
}

func unlocker(lock *sqllock.Lock, err error) (func() error, error) { return lock.Unlock, err }
