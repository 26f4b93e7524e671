package databases

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A role that has lost USAGE on the schema of the lease tables does not create
// others in the next schema of its search_path. When it has the right again, an
// instance that opens then and one that has stayed would use different tables.
func TestLongLeaseTablesInASchemaThatIsHidden(t *testing.T) {
	eachTenant(t, func(t *testing.T, p *tenant) {
		p.inDatabase("ALTER DATABASE %[1]s SET search_path = kit, public; GRANT CREATE, USAGE ON SCHEMA public TO %[2]s")
		stayed := p.leaseSession(sqllock.WithLease(lease))
		lock := awaitLock(t, stayed, p.key(1))
		p.inDatabase("REVOKE USAGE ON SCHEMA kit FROM %[2]s")
		lockertest.Eventually(t, "the holder is told", func() bool { return lock.Err() != nil })
		lockertest.Eventually(t, "the Session says which right it needs", func() bool {
			_, err := stayed.TryLock(t.Context(), p.key(2))
			return err == nil || strings.Contains(err.Error(), "USAGE")
		})
		p.inDatabase("DO $$ BEGIN IF (SELECT count(*) FROM pg_class WHERE relname = 'latchkey_sessions') <> 1 THEN RAISE 'there are other tables'; END IF; END $$")
		p.inDatabase("GRANT USAGE ON SCHEMA kit TO %[2]s")
		ctx, cancel := context.WithTimeout(t.Context(), 20*lease)
		defer cancel()
		lock, err := stayed.Lock(ctx, p.key(1)) // its old row expires first
		must(t, err)
		if l, err := p.leaseSession().TryLock(t.Context(), p.key(1)); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("an instance that opens now: %v, %v, want ErrHeld", l, err)
		}
		mustUnlock(t, lock)
	})
}
