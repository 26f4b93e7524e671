package databases

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// replace renames p's database and creates another one under its name. It
// returns the tenant of the renamed one.
func (p *tenant) replace() (renamed *tenant) {
	p.t.Helper()
	p.rename(p.database, p.database+"_old")
	p.createDatabase()
	renamed = &tenant{t: p.t, server: p.server, driver: p.driver, role: p.role, database: p.database + "_old"}
	renamed.password.Store(p.password.Load())
	return renamed
}

// Advisory locks belong to a database, not to its name. A database is renamed
// only when no one is connected, so each holder is told before another database
// has its name. Sessions go by the name. So an instance that connects by the new
// name of the old database is not excluded any more.
func TestAnotherDatabaseUnderTheOldName(t *testing.T) {
	eachTenant(t, func(t *testing.T, p *tenant) {
		s, other := p.session(), p.session()
		lock := mustLock(t, s, p.key(1))
		renamed := p.replace()
		lockertest.Eventually(t, "the holder is told", func() bool { return lock.Err() != nil })
		held := awaitLock(t, other, p.key(1)) // in the new database
		lockertest.Eventually(t, "the first Session is in the new database as well", func() bool {
			_, err := s.TryLock(t.Context(), p.key(1))
			return errors.Is(err, sqllock.ErrHeld)
		})
		mustUnlock(t, mustLock(t, renamed.session(), p.key(1))) // docs/databases/conditions.md says so
		if err := held.Err(); err != nil {
			t.Errorf("the lock in the new database: %v", err)
		}
		mustUnlock(t, held)
		p.wantQuietLog(4) // the reasons for no connection change meanwhile
	})
}

// The rows of a lease table stay in the database that was renamed. Their holder
// is told by its next statement.
func TestAnotherDatabaseUnderTheOldNameOfALeaseTable(t *testing.T) {
	eachTenant(t, func(t *testing.T, p *tenant) {
		s := p.leaseSession(sqllock.WithLease(60 * lease))
		lock := mustLock(t, s, p.key(1))
		p.replace()
		awaitLoss(t, lock) // long before the lease ends
		p.serves(s)
		p.wantQuietLog(2) // the reasons for no connection change meanwhile
	})
}

// The locks of a lease table outlive a rename of the database and back that takes
// less than the lease.
func TestLeaseTableOutlivesARename(t *testing.T) {
	eachTenant(t, func(t *testing.T, p *tenant) {
		s := p.leaseSession(sqllock.WithLease(60 * lease))
		lock := mustLock(t, s, p.key(1))
		renamed(p)
		renamedBack(p)
		p.beats(s, lock)
		mustUnlock(t, lock)
		p.wantQuietLog(0)
	})
}

// A database that can only be read for less than the lease costs no lock.
// Connections that were made meanwhile, which can only read for good, are not
// used again.
func TestLongLeaseTableOutlivesAReadOnlyMoment(t *testing.T) {
	eachTenant(t, func(t *testing.T, p *tenant) {
		s := p.leaseSession(sqllock.WithLease(6 * lease))
		lock := awaitLock(t, s, p.key(1))
		database(readOnly)(p)
		p.endConnections()
		p.fails(s, sqllock.ErrUnavailable, "")
		database(noReadOnly)(p)
		p.serves(s)
		mustUnlock(t, lock)
		p.wantQuietLog(0)
	})
}

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
