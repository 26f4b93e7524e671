package databases

import (
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A serverFault is what an administrator of a shared server does while Sessions
// are at work.
//
// Invariant: its name is the first column of a row in
// docs/databases/conditions.md.
type serverFault struct {
	name string
	do   func(p *tenant)
	undo func(p *tenant)

	ends bool   // the deed ends the tenant's connections
	err  error  // of a call on a connection that lives; nil: none fails
	says string // in the text of err

	refused     error  // of a call, when the connection is gone as well; nil: the Session connects again
	refusedSays string // in the text of refused
	noRelease   bool   // what is acquired cannot be given back
}

// What administrators of a shared server do costs a Session no lock that the
// server has kept. Calls return an error that says what to change. The log has
// one line for each change. When it is undone, the same Session serves again.
func TestLongServerFaults(t *testing.T) {
	t.Parallel()
	server := newSharedServer(t)
	for _, f := range serverFaults {
		for _, driver := range pgtest.Drivers() {
			t.Run(f.name+"/"+driver, func(t *testing.T) {
				t.Parallel()
				f.meets(t, server.tenant(t, driver))
			})
		}
	}
}

// A few of the faults of TestLongServerFaults: one that counts for logins, one
// that fails each call, one of the registry.
func TestServerFaults(t *testing.T) {
	t.Parallel()
	server := newSharedServer(t)
	for i, name := range []string{"password changed", "EXECUTE on pg_try_advisory_lock revoked", "rights on the registry revoked"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := serverFaults[slices.IndexFunc(serverFaults, func(f serverFault) bool { return f.name == name })]
			f.meets(t, server.tenant(t, pgtest.Drivers()[i%2]))
		})
	}
}

// meets lets f happen to a holder and a waiter of p.
func (f serverFault) meets(t *testing.T, p *tenant) {
	holder, waiter := p.session(), p.session()
	lock := mustLock(t, holder, p.key(1))
	waiting := p.await(waiter, p.key(1))
	p.registered(lock)

	f.do(p)
	if !f.ends {
		f.keeps(t, p, holder, waiter, lock)
		p.endConnections()
	}
	awaitLoss(t, lock)
	if f.refused != nil {
		p.fails(holder, f.refused, f.refusedSays)
		if n := len(waiting); n != 0 {
			t.Error("the waiter was granted the key, or has given up, without a connection")
		}
	} else {
		p.serves(holder)
	}
	f.undo(p)
	p.serves(holder)
	p.mustBeGranted(waiting)
	p.wantQuietLog(3) // a rename has three reasons in turn: connections not allowed, no database, not allowed
}

// keeps checks that the lock stays held for several heartbeats under f, and that
// other calls do what f says.
func (f serverFault) keeps(t *testing.T, p *tenant, holder, waiter *sqllock.Session, lock *sqllock.Lock) {
	t.Helper()
	p.beats(holder, lock)
	if n := waiter.Stats().Losses; n != 0 {
		t.Errorf("the waiter lost %d connections", n)
	}
	switch {
	case f.err != nil:
		p.fails(holder, f.err, f.says)
	case !f.noRelease:
		other := mustLock(t, holder, p.key(2))
		if err := other.Unlock(); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	}
	if err := lock.Err(); err != nil {
		t.Errorf("the lock: %v", err)
	}
	if n := holder.Stats().Losses; n != 0 {
		t.Errorf("%d connections were lost", n)
	}
}

// What an administrator does: %[1]s is the tenant's database, and %[2]s its role.
func role(how string) func(*tenant) { return func(p *tenant) { p.alterRole(how) } }
func database(how string) func(*tenant) {
	return func(p *tenant) { p.exec("ALTER DATABASE %[1]s " + how) }
}
func inDatabase(what string) func(*tenant) { return func(p *tenant) { p.inDatabase(what) } }
func rejected(kind string) func(*tenant)   { return func(p *tenant) { p.rejectBy(kind) } }
func locked(tables string) func(*tenant)   { return func(p *tenant) { p.lockTables(tables) } }

func revoked(function string) func(*tenant) { return inDatabase(revoke(function)) }
func granted(function string) func(*tenant) { return inDatabase(grantAgain(function)) }

func renamed(p *tenant)       { p.rename(p.database, p.database+"_old") }
func renamedBack(p *tenant)   { p.rename(p.database+"_old", p.database) }
func knowsPassword(p *tenant) { p.password.Store("leaky_next") }

const (
	newPassword = "PASSWORD 'leaky_next'"
	readOnly    = "SET default_transaction_read_only = on"
	noReadOnly  = "RESET default_transaction_read_only"
)

var serverFaults = []serverFault{
	{name: "role made NOLOGIN", do: role("NOLOGIN"), undo: role("LOGIN"), refused: sqllock.ErrConfig, refusedSays: "28000"},
	{name: "VALID UNTIL has passed", do: role("VALID UNTIL '2001-01-01'"), undo: role("VALID UNTIL 'infinity'"), refused: sqllock.ErrConfig, refusedSays: "28P01"},
	{name: "password changed", do: role(newPassword), undo: knowsPassword, refused: sqllock.ErrConfig, refusedSays: "28P01"},
	{name: "CONNECTION LIMIT 0 of the role", do: role("CONNECTION LIMIT 0"), undo: role("CONNECTION LIMIT -1"), refused: sqllock.ErrUnavailable, refusedSays: "53300"},
	{name: "CONNECTION LIMIT 1 of the role", do: role("CONNECTION LIMIT 1"), undo: role("CONNECTION LIMIT -1"), refused: sqllock.ErrUnavailable, refusedSays: "53300"},
	{name: "role dropped and created again", do: (*tenant).dropRole, undo: (*tenant).createRole, refused: sqllock.ErrConfig, refusedSays: "28"},
	{name: "pg_hba.conf rejects the role", do: rejected("host"), undo: rejected(""), refused: sqllock.ErrConfig, refusedSays: "28000"},
	{name: "pg_hba.conf demands TLS", do: rejected("hostnossl"), undo: rejected(""), refused: sqllock.ErrConfig, refusedSays: "28000"},
	{
		name:    "CONNECT revoked",
		do:      func(p *tenant) { p.exec("REVOKE CONNECT ON DATABASE %[1]s FROM PUBLIC") },
		undo:    func(p *tenant) { p.exec("GRANT CONNECT ON DATABASE %[1]s TO PUBLIC") },
		refused: sqllock.ErrConfig, refusedSays: "42501",
	},
	{name: "ALLOW_CONNECTIONS false", do: database("ALLOW_CONNECTIONS false"), undo: database("ALLOW_CONNECTIONS true"), refused: sqllock.ErrConfig, refusedSays: "55000"},
	{name: "CONNECTION LIMIT 0 of the database", do: database("CONNECTION LIMIT 0"), undo: database("CONNECTION LIMIT -1"), refused: sqllock.ErrUnavailable, refusedSays: "53300"},
	{name: "database renamed, and back", do: renamed, undo: renamedBack, ends: true, refused: sqllock.ErrConfig, refusedSays: "3D000"},
	{
		name: "database dropped and created again",
		do:   func(p *tenant) { p.exec("DROP DATABASE %[1]s WITH (FORCE)") },
		undo: (*tenant).createDatabase,
		ends: true, refused: sqllock.ErrConfig, refusedSays: "3D000",
	},
	{name: "rights on the registry revoked", do: inDatabase("REVOKE ALL ON latchkey_heartbeats, latchkey_waits FROM %[2]s"), undo: (*tenant).grant},
	{name: "USAGE on the schema revoked", do: inDatabase("REVOKE USAGE ON SCHEMA kit FROM %[2]s"), undo: (*tenant).grant},
	{
		name: "EXECUTE on pg_try_advisory_lock revoked", do: revoked("pg_try_advisory_lock"), undo: granted("pg_try_advisory_lock"),
		err: sqllock.ErrConfig, says: "42501", refused: sqllock.ErrConfig, refusedSays: "42501",
	},
	{
		name: "EXECUTE on pg_advisory_unlock revoked", do: revoked("pg_advisory_unlock"), undo: granted("pg_advisory_unlock"),
		noRelease: true, refused: sqllock.ErrConfig, refusedSays: "42501",
	},
	{name: "EXECUTE on pg_stat_get_activity revoked", do: revoked("pg_stat_get_activity"), undo: granted("pg_stat_get_activity")},
	{name: "EXECUTE on pg_lock_status revoked", do: revoked("pg_lock_status"), undo: granted("pg_lock_status")},
	{name: "ACCESS EXCLUSIVE on the registry", do: locked("kit.latchkey_heartbeats, kit.latchkey_waits"), undo: (*tenant).unlock},
	{name: "default_transaction_read_only", do: database(readOnly), undo: database(noReadOnly)},
}
