package databases

import (
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// startSmall starts a shared server with a small disk, or skips the test.
func startSmall(t *testing.T, megabytes int) *sharedServer {
	t.Helper()
	c, err := pgtest.Start(pgtest.WithSmallDisk(megabytes))
	if errors.Is(err, pgtest.ErrNoMounts) {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return newSharedServerOn(t, c)
}

// A party is a tenant on a small disk, with a Session that holds a lock, another
// one that waits for it, and a lock in a lease table.
type party struct {
	*tenant
	locks, leases *sqllock.Session
	lock, row     *sqllock.Lock
	waiting       <-chan grant
}

// parties makes a party for each driver. move puts its database on the disk.
func parties(t *testing.T, server *sharedServer, move string) (all []*party) {
	t.Helper()
	for _, driver := range pgtest.Drivers() {
		p := &party{tenant: server.tenant(t, driver)}
		if move != "" {
			p.exec(move)
		}
		p.locks, p.leases = p.session(), p.leaseSession()
		p.lock, p.row = mustLock(t, p.locks, p.key(1)), mustLock(t, p.leases, p.key(1))
		p.waiting = p.await(p.session(), p.key(1))
		all = append(all, p)
	}
	return all
}

// While the disk of a database is full, advisory locks are granted, kept and
// released as before. Fence and a new row of a lease table fail, and the error
// names the disk. Once there is room, all goes on.
func TestLongFullDisk(t *testing.T) {
	t.Parallel()
	server := startSmall(t, 64)
	execute(t, server.admin, "CREATE TABLESPACE small LOCATION '"+server.cluster.SmallDisk()+"'")
	all := parties(t, server, "ALTER DATABASE %[1]s SET TABLESPACE small")
	for _, p := range all {
		p.registered(p.lock)
	}
	must(t, server.cluster.FillDisk())
	for _, p := range all {
		if err := p.fence(p.pool(), p.lock); err == nil || !strings.Contains(err.Error(), "disk is full") || errors.Is(err, sqllock.ErrFenced) {
			t.Errorf("Fence on a full disk: %v, want an error that names the disk", err)
		}
		p.isClosed("is full")
		var err error
		for n := int64(0); err == nil && n < 10_000; n++ { // until the pages of the table are full
			_, err = p.leases.TryLock(t.Context(), sqllock.ID(n))
		}
		if !errors.Is(err, sqllock.ErrUnavailable) || !strings.Contains(err.Error(), "disk is full") {
			t.Errorf("TryLock in a lease table: %v, want ErrUnavailable that names the disk", err)
		}
		p.wantDiscreet(err.Error())
		mustUnlock(t, mustLock(t, p.locks, p.key(2)))
		p.beats(p.locks, p.lock)
		p.beats(p.leases, p.row)
		if err := errors.Join(p.lock.Err(), p.row.Err()); err != nil || len(p.waiting) != 0 {
			t.Errorf("locks on a full disk: %v; %d waiters were served", err, len(p.waiting))
		}
	}
	must(t, server.cluster.MakeRoom())
	for _, p := range all {
		lockertest.Eventually(t, "the lock is fenced", func() bool { return p.fence(p.pool(), p.lock) == nil })
		p.isOpen()
		mustUnlock(t, p.lock)
		p.mustBeGranted(p.waiting)
		mustUnlock(t, mustLock(t, p.leases, p.key(2)))
		mustUnlock(t, p.row)
		p.wantQuietLog(4)
	}
}
