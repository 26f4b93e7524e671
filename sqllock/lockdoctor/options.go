package lockdoctor

import "github.com/latchkey-go/latchkey/sqllock"

// An Option changes what [Check] examines.
type Option func(*options)

type options struct {
	sessions   []*sqllock.Session
	namespaces []sqllock.KeyedNamespace
	schema     string // of the registry's tables; empty: the search_path finds them
	leaseTable bool
	instances  int // of the fleet; 0: not known
	locks      int // that the fleet holds at its peak
}

// WithSession makes Check examine s as well. It reports whether s is connected,
// how much of its lease is left and whether its socket is watched. The option may
// be given several times, for several Sessions on the database.
//
// The timeouts of the database are compared with the lease of s, or with the
// default lease if that is shorter. WithLeaseTable is implied behind a
// transaction pooler, and on a system that only resembles PostgreSQL: no other
// Session connects there.
//
// WithSession panics if s is nil.
func WithSession(s *sqllock.Session) Option {
	if s == nil {
		panic("lockdoctor: WithSession needs a Session that is not nil")
	}
	return func(o *options) { o.sessions = append(o.sessions, s) }
}

// WithLeaseTable makes Check expect that locks are rows of a lease table, as
// with [sqllock.WithLeaseTable]. A transaction pooler is no fault then.
func WithLeaseTable() Option {
	return func(o *options) { o.leaseTable = true }
}

// WithSchema names the schema of the registry's tables, as that of lockwatch
// does. Without this option the search_path finds them.
//
// WithSchema panics if schema is empty.
func WithSchema(schema string) Option {
	if schema == "" {
		panic("lockdoctor: WithSchema needs a schema's name")
	}
	return func(o *options) { o.schema = schema }
}

// WithFleet makes Check compare the server's connections, and the room in its
// lock table, with what a whole fleet needs. instances is the number of
// processes. locks is how many locks all of them together hold at their peak.
// Without this option only what is in use now counts.
//
// WithFleet panics if instances is not positive, or if locks is negative.
func WithFleet(instances, locks int) Option {
	if instances <= 0 || locks < 0 {
		panic("lockdoctor: WithFleet needs a positive number of instances and a number of locks")
	}
	return func(o *options) { o.instances, o.locks = instances, locks }
}

// WithKeyedNamespace makes Check find out whether another Session on the
// database uses the namespace of n with another secret. It needs WithSession,
// and may be given several times.
//
// Sessions with PostgreSQL's advisory locks notice that themselves. Elsewhere
// Check compares the Sessions that were examined with this option: let each
// process call Check, and again after its Session has lost a connection. Check
// writes a row into latchkey_secret_checks, a table that it creates on MySQL. The
// Session holds a lock from then on, so sqllock.WithIdleClose does not close it.
//
// WithKeyedNamespace panics if n is not of Keyed.
func WithKeyedNamespace(n sqllock.KeyedNamespace) Option {
	if n == (sqllock.KeyedNamespace{}) {
		panic("lockdoctor: WithKeyedNamespace needs a namespace of sqllock.Namespace.Keyed")
	}
	return func(o *options) { o.namespaces = append(o.namespaces, n) }
}
