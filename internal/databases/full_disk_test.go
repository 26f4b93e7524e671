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
func startSmall(t *testing.T, megabytes int, wal bool, settings map[string]string) *sharedServer {
	t.Helper()
	c, err := pgtest.Start(pgtest.WithSmallDisk(megabytes, wal), pgtest.WithSettings(settings),
		pgtest.WithSettings(map[string]string{"synchronous_commit": "on"})) // the server may crash
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

// step fails the test if a step on the server fails.
func step(t *testing.T, do func() error) {
	t.Helper()
	must(t, do())
}

// While the disk of a database is full, advisory locks are granted, kept and
// released as before. Fence and a new row of a lease table fail, and the error
// names the disk. Once there is room, all goes on.
func TestLongFullDisk(t *testing.T) {
	t.Parallel()
	server := startSmall(t, 64, false, nil)
	execute(t, server.admin, "CREATE TABLESPACE small LOCATION '"+server.cluster.SmallDisk()+"'")
	type party struct {
		*tenant
		locks, leases *sqllock.Session
		lock, row     *sqllock.Lock
		shop          *shop
		waiting       <-chan grant
	}
	var parties []*party
	for _, driver := range pgtest.Drivers() {
		p := &party{tenant: server.tenant(t, driver)}
		p.exec("ALTER DATABASE %[1]s SET TABLESPACE small")
		p.locks, p.leases = p.session(), p.leaseSession()
		p.lock, p.row = mustLock(t, p.locks, p.key(1)), mustLock(t, p.leases, p.key(1))
		p.waiting = p.await(p.session(), p.key(1))
		p.registered(p.lock)
		p.shop = p.tenant.shop(p.locks)
		parties = append(parties, p)
	}

	step(t, server.cluster.FillDisk)
	for _, p := range parties {
		if err := p.fence(p.pool(), p.lock); err == nil || !strings.Contains(err.Error(), "disk is full") || errors.Is(err, sqllock.ErrFenced) {
			t.Errorf("Fence on a full disk: %v, want an error that names the disk", err)
		}
		p.shop.isClosed("disk is full")
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
		for what, lock := range map[string]*sqllock.Lock{"the advisory lock": p.lock, "the row": p.row} {
			if err := lock.Err(); err != nil {
				t.Errorf("%s on a full disk: %v", what, err)
			}
		}
		if len(p.waiting) != 0 {
			t.Error("the waiter got a key that is held")
		}
	}

	step(t, server.cluster.MakeRoom)
	for _, p := range parties {
		lockertest.Eventually(t, "the lock is fenced", func() bool { return p.fence(p.pool(), p.lock) == nil })
		p.shop.isOpen()
		mustUnlock(t, p.lock)
		p.mustBeGranted(p.waiting)
		mustUnlock(t, mustLock(t, p.leases, p.key(2)))
		mustUnlock(t, p.row)
		p.wantQuietLog(4)
	}
}

// A server without room for its write-ahead log ends itself and every session.
// Holders are told, and the Sessions serve again once it has room and runs.
func TestLongFullWriteAheadLog(t *testing.T) {
	t.Parallel()
	server := startSmall(t, 64, true, map[string]string{"wal_keep_size": "0", "max_wal_size": "32MB", "min_wal_size": "32MB"})
	var parties []*tenant
	var locks, rows []*sqllock.Lock
	var sessions, leases []*sqllock.Session
	var waiting []<-chan grant
	for _, driver := range pgtest.Drivers() {
		p := server.tenant(t, driver)
		parties = append(parties, p)
		sessions, leases = append(sessions, p.session()), append(leases, p.leaseSession())
		i := len(parties) - 1
		locks, rows = append(locks, mustLock(t, sessions[i], p.key(1))), append(rows, mustLock(t, leases[i], p.key(1)))
		waiting = append(waiting, p.await(p.session(), p.key(1)))
	}
	step(t, server.cluster.FillDisk)
	lockertest.Eventually(t, "the server ends itself", func() bool {
		_, err := server.admin.Exec("SELECT pg_logical_emit_message(false, '', repeat('x', 1000000)) FROM generate_series(1, 40); SELECT pg_switch_wal()")
		return err != nil
	})
	for i := range parties {
		lockertest.Eventually(t, "the holder is told", func() bool { return locks[i].Err() != nil })
	}
	step(t, server.cluster.Kill) // it may have recovered by itself, for a while
	for i, p := range parties {
		p.fails(sessions[i], sqllock.ErrUnavailable, "")
	}
	step(t, server.cluster.MakeRoom)
	step(t, server.cluster.StartAgain)
	for i, p := range parties {
		p.serves(sessions[i])
		lockertest.Eventually(t, "the waiter gets the key", func() bool { return len(waiting[i]) == 1 })
		g := <-waiting[i]
		if g.err != nil {
			t.Fatalf("Lock: %v", g.err)
		}
		if err := g.lock.Unlock(); err != nil && !errors.Is(err, sqllock.ErrLost) { // lost if it is of the recovered server
			t.Errorf("Unlock: %v", err)
		}
		p.serves(leases[i])
		lock := mustLock(t, sessions[i], p.key(1))
		lockertest.Eventually(t, "the lock is fenced", func() bool { return p.fence(p.pool(), lock) == nil })
		if err := rows[i].Err(); err == nil { // its row has outlived the server
			mustUnlock(t, rows[i])
		} else if !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("the row: %v", err)
		}
		p.wantQuietLog(6) // the server may have started and ended once more
	}
}
