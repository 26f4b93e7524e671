package databases

import (
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// isClosed checks that watermarks and idempotent requests of p fail, and that
// the errors say why.
func (p *tenant) isClosed(says string) {
	p.t.Helper()
	if err := p.stage().try(p.t, useWatermark); err == nil || !strings.Contains(err.Error(), says) {
		p.t.Errorf("watermark: %v, want an error that mentions %q", err, says)
	} else {
		p.wantDiscreet(err.Error())
	}
	var own *ownError // of the effect, which meets the same fault
	if err := p.stage().try(p.t, useIdempotency); err == nil || !errors.As(err, &own) && !strings.Contains(err.Error(), says) {
		p.t.Errorf("idempotency: %v, want an error that mentions %q", err, says)
	} else if own == nil {
		p.wantDiscreet(err.Error())
	}
}

// isOpen checks that watermarks and idempotent requests of p succeed.
func (p *tenant) isOpen() {
	p.t.Helper()
	if err := errors.Join(p.stage().try(p.t, useWatermark), p.stage().try(p.t, useIdempotency)); err != nil {
		p.t.Error(err)
	}
}

// A role that may not use the tables of watermarks and responses is told so, and
// nothing happens without them. When it may again, all goes on.
func TestWatermarkAndIdempotencyWithoutRights(t *testing.T) {
	eachTenant(t, func(t *testing.T, p *tenant) {
		locks := p.session()
		p.inDatabase("REVOKE ALL ON latchkey_watermarks, latchkey_responses FROM %[2]s")
		p.isClosed("SELECT")
		p.grant()
		p.isOpen()
		p.inDatabase("REVOKE USAGE ON SCHEMA kit FROM %[2]s")
		p.isClosed("search_path")
		p.grant()
		p.isOpen()
		if n := locks.Stats().Losses; n != 0 {
			t.Errorf("%d connections were lost", n)
		}
	})
}

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
