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
		key := userKey("sqlx", 1)
		tx := db.MustBegin()
		defer tx.Rollback()
		lock := mustLock(t, s, key)
		if err := sqllock.Fence(t.Context(), tx, lock); err != nil {
			t.Errorf("Fence: %v", err)
		}
		if err := sqllock.TryTx(t.Context(), tx, key); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("TryTx of a held key: %v, want ErrHeld", err)
		}
		mustUnlock(t, lock)
		if err := sqllock.TryTx(t.Context(), tx, key); err != nil {
			t.Errorf("TryTx: %v", err)
		}
		conn, err := db.Connx(t.Context())
		must(t, err)
		defer conn.Close()
		if _, err := sqllock.OnConn(conn.Conn).TryLock(t.Context(), key); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("TryLock on a Conn while a Tx holds: %v, want ErrHeld", err)
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
