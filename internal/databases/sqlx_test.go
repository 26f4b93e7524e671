package databases

import (
	"errors"
	"testing"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/sqllock"
)

// The pool of an sqlx.DB opens a Session, also with wrapped drivers. Locks can be
// acquired directly on its Conn and Tx, and its Tx can be fenced. Errors keep
// their SQLSTATE.
func TestSqlx(t *testing.T) {
	eachWrapping(t, onShared, func(t *testing.T, on stage) {
		db := sqlx.NewDb(on.pool(t), on.driver)
		s := session(t, db.DB)
		conn, err := db.Connx(t.Context())
		must(t, err)
		defer conn.Close()
		tx := db.MustBegin()
		defer tx.Rollback()

		if err := sqllock.Fence(t.Context(), tx, mustLock(t, s, userKey("sqlx", 1))); err != nil {
			t.Errorf("Fence: %v", err)
		}
		key := userKey("sqlx", 2)
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
		failed := db.MustBegin()
		defer failed.Rollback()
		if _, err := failed.Exec("SELECT 1/0"); err == nil {
			t.Fatal("no error")
		}
		var state interface{ SQLState() string }
		if err := sqllock.TryTx(t.Context(), failed, key); !errors.As(err, &state) || state.SQLState() != "25P02" {
			t.Errorf("TryTx in a failed transaction: %v, want one with SQLSTATE 25P02", err)
		}
	})
}

func unlocker(lock *sqllock.Lock, err error) (func() error, error) { return lock.Unlock, err }
