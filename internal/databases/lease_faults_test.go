package databases

import (
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// lease is that of a tenant's Sessions whose locks are to expire.
const lease = 6 * time.Second

// What keeps a Session from writing to its lease table costs the locks once the
// lease has passed, and not before. The holder is told. Calls say what is
// wrong. When it is undone, the same Session serves again.
func TestLongServerFaultsOfALeaseTable(t *testing.T) {
	t.Parallel()
	server := newSharedServer(t)
	for _, f := range leaseFaults {
		for _, driver := range pgtest.Drivers() {
			t.Run(f.name+"/"+driver, func(t *testing.T) {
				t.Parallel()
				p := server.tenant(t, driver)
				s := p.leaseSession(sqllock.WithLease(lease))
				waiter := p.leaseSession(sqllock.WithLease(lease))
				lock := awaitLock(t, s, p.key(1))
				waiting := p.await(waiter, p.key(1))
				f.do(p)
				p.endConnections()
				awaitLoss(t, lock)
				if n := s.Stats().LossesBy["lease"] + s.Stats().LossesBy["connection"]; n != 1 {
					t.Errorf("losses: %v", s.Stats().LossesBy)
				}
				p.fails(s, f.refused, f.refusedSays)
				if len(waiting) != 0 {
					t.Error("the waiter returned")
				}
				f.undo(p)
				p.serves(s)
				p.mustBeGranted(waiting)
				p.wantQuietLog(4) // a reason while the lease lasts, and another after it
			})
		}
	}
}

const needsRights = "SELECT, INSERT, UPDATE and DELETE"

var leaseFaults = []serverFault{
	{
		name: "lease table: rights revoked", do: inDatabase("REVOKE ALL ON ALL TABLES IN SCHEMA kit FROM %[2]s"), undo: (*tenant).grant,
		refused: sqllock.ErrConfig, refusedSays: needsRights,
	},
	{
		name: "lease table: USAGE on the schema revoked", do: inDatabase("REVOKE USAGE ON SCHEMA kit FROM %[2]s"), undo: (*tenant).grant,
		refused: sqllock.ErrConfig, refusedSays: needsRights,
	},
	{name: "lease table: ACCESS EXCLUSIVE", do: locked("kit.latchkey_sessions"), undo: (*tenant).unlock, refused: sqllock.ErrUnavailable},
	{
		name: "lease table: default_transaction_read_only", do: database(readOnly), undo: database(noReadOnly),
		refused: sqllock.ErrConfig, refusedSays: "set default_transaction_read_only=off",
	},
	{name: "lease table: password changed", do: role(newPassword), undo: knowsPassword, refused: sqllock.ErrConfig, refusedSays: "28P01"},
	{name: "lease table: database renamed, and back", do: renamed, undo: renamedBack, refused: sqllock.ErrConfig, refusedSays: "3D000"},
}
