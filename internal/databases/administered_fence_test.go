package databases

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A right that tokens need is revoked: Fence names the functions. The lock stays.
func TestFenceWithoutRightToTokens(t *testing.T) {
	eachTenant(t, func(t *testing.T, p *tenant) {
		s, db := p.session(), p.pool()
		for i, function := range []string{"pg_logical_emit_message", "pg_control_system"} {
			lock := mustLock(t, s, p.key(i))
			p.inDatabase(revoke(function))
			if err := p.fence(db, lock); err == nil || !strings.Contains(err.Error(), function) || errors.Is(err, sqllock.ErrFenced) {
				t.Errorf("Fence: %v, want an error that names %s", err, function)
			}
			if err := lock.Err(); err != nil {
				t.Errorf("the lock: %v", err)
			}
			p.inDatabase(grantAgain(function))
			if err := p.fence(db, lock); err != nil {
				t.Errorf("Fence when it may again: %v", err)
			}
			mustUnlock(t, lock)
		}
	})
}

// Fence says what is wrong where the role may not use its table, where that is
// locked, and where nothing can be written. The lock stays.
func TestFenceOnAnAdministeredServer(t *testing.T) {
	eachTenant(t, func(t *testing.T, p *tenant) {
		s := p.session()
		lock := mustLock(t, s, p.key(1))
		for _, tt := range []struct {
			name     string
			do, undo func(*tenant)
			says     string
		}{
			{"rights revoked", inDatabase("REVOKE ALL ON latchkey_fence FROM %[2]s"), (*tenant).grant, "latchkey_fence"},
			{"read-only", database(readOnly), database(noReadOnly), "read-only"},
			{"table dropped", inDatabase("ALTER TABLE latchkey_fence RENAME TO other"), inDatabase("ALTER TABLE other RENAME TO latchkey_fence"), "FenceSchema"},
		} {
			tt.do(p)
			err := p.fence(p.pool(), lock)
			if tt.name == "read-only" && p.driver == "postgres" { // lib/pq begins its transactions READ WRITE
				err = cmp.Or(err, errors.New("read-only"))
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) || errors.Is(err, sqllock.ErrFenced) {
				t.Errorf("%s: Fence: %v, want an error that mentions %q", tt.name, err, tt.says)
			}
			tt.undo(p)
			if err := p.fence(p.pool(), lock); err != nil {
				t.Errorf("%s: Fence after that: %v", tt.name, err)
			}
		}
		mustUnlock(t, lock)
	})
}
