package faults

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/proxy"
)

// A Row is one kind of fault. Its number never changes.
type Row struct {
	Number int
	Name   string
	Quick  bool // it takes less than the lease, about
	Does   Does // to its victim
	On     map[fleet.Store]Promise

	// inject makes the fault and mends it. It returns the victim, or nil if
	// that is the server or every member. The error matches ErrViolated if a
	// guarantee did not hold meanwhile.
	inject func(ctx context.Context, f *Injector) (*fleet.Member, error)
}

// Does says what a fault does to a process.
type Does int

// What a fault does. One that does Nothing happens elsewhere.
const (
	Disturbs Does = iota
	Kills
	Freezes // the process does not run
	Slows   // answers are late
	Cuts    // it gets no answer, or finds no server that may grant
	Nothing
)

// A Promise is what holds in a fault, in one store.
type Promise struct {
	Effect Effect
	Leases int           // the keys of a victim are granted again when so many leases have passed
	Back   time.Duration // after that, or from the beginning of the fault; 0: nothing is promised
	AtEnd  bool          // Back counts from the end of the fault
	News   bool          // the server ends a session, and the client is notified a little later
}

// An Effect says which locks a fault may cost.
type Effect int

// The effects.
const (
	Any           Effect = iota // which locks are lost depends on the moment
	NothingLost                 // no process may report a loss
	VictimLoses                 // the victim must find that its connection is lost, and no other may
	VictimAtLeast               // the victim must, and others may
	VictimAtMost                // the victim may, and no other
	AllLose                     // every process must
)

// Costs reports whether the fault costs a process its connection and the locks on
// it, for certain.
func (e Effect) Costs() bool { return e == VictimLoses || e == VictimAtLeast || e == AllLose }

// half is what a caller needs beyond a lease to have a key: a pause, and a
// statement. On a lease table statements remove what has expired, too.
const half = 500 * time.Millisecond

var (
	any_     = Promise{Effect: Any}
	nothing  = Promise{Effect: NothingLost}
	atMost   = Promise{Effect: VictimAtMost}
	noticed  = Promise{Effect: VictimLoses, Back: time.Second, News: true}
	silent   = Promise{Effect: VictimLoses, Leases: 1, Back: half}
	expires  = Promise{Effect: VictimLoses, Leases: 1, Back: 2 * half}
	stopped  = Promise{Effect: AllLose, Back: 2 * time.Second, AtEnd: true, News: true}
	standing = Promise{Effect: AllLose, Back: 2 * time.Second, AtEnd: true}
)

// A where says what a row promises in each store.
type where = map[fleet.Store]Promise

// everywhere promises p in all stores.
func everywhere(p Promise) where {
	all := networked(p, p)
	all[fleet.SQLite] = p
	return all
}

// networked is on in PostgreSQL and MariaDB, and leased on the lease tables that
// are behind a network.
func networked(on, leased Promise) where {
	return where{fleet.Postgres: on, fleet.MariaDB: on, fleet.Leases: leased, fleet.PooledLeases: leased, fleet.MariaDBLeases: leased, fleet.TiDB: leased}
}

// single is networked without TiDB, which has two servers.
func single(on, leased Promise) where {
	all := networked(on, leased)
	delete(all, fleet.TiDB)
	return all
}

// with is all, but for one store.
func with(store fleet.Store, p Promise, all where) where {
	all[store] = p
	return all
}

// table is all kinds of faults. A connection of a lease table is none of its
// session's business, and its locks outlive a restart of the server.
var table = []Row{
	{Number: 1, Name: "kill -9", Does: Kills, inject: kill, On: with(
		fleet.SQLite, Promise{Leases: 1, Back: 2 * half}, networked(Promise{Back: time.Second}, Promise{Leases: 1, Back: 2 * half}))},
	{Number: 2, Name: "frozen longer than the lease", Does: Freezes, inject: freeze((*Injector).long), On: with(
		// The process may be frozen in the middle of a transaction, which keeps the file locked.
		fleet.SQLite, Promise{Effect: VictimAtLeast, Back: 2 * time.Second, AtEnd: true}, networked(silent, expires))},
	{Number: 3, Name: "frozen for a moment", Quick: true, Does: Freezes, inject: freeze((*Injector).briefly), On: everywhere(nothing)},
	// Statements may renew a lease in the table until the client gives up.
	{Number: 4, Name: "nothing comes from the server", Does: Cuts, inject: cut((*Injector).long, swallow(proxy.ToClient)),
		On: networked(silent, Promise{Effect: VictimLoses, Leases: 2, Back: 2 * half})},
	{Number: 5, Name: "nothing reaches the server", Does: Cuts, inject: cut((*Injector).long, swallow(proxy.ToServer)), On: networked(silent, expires)},
	{Number: 6, Name: "link down for a moment", Quick: true, Does: Cuts, inject: cut((*Injector).briefly, hold), On: networked(nothing, nothing)},
	{Number: 7, Name: "half-open connections", inject: ended((*proxy.Proxy).HalfOpen), On: networked(noticed, atMost)},
	{Number: 8, Name: "connections reset", Quick: true, inject: ended((*proxy.Proxy).Sever), On: networked(noticed, nothing)},
	{Number: 9, Name: "slow network", Does: Slows, inject: cut((*Injector).long, slow), On: networked(any_, any_)},
	// In MariaDB it may be that of a transaction that draws a token, on a connection of the pool.
	{Number: 11, Name: "a reply lost", Quick: true, inject: loseReply, On: with(
		fleet.MariaDB, Promise{Effect: VictimAtMost, News: true}, networked(noticed, nothing))},
	{Number: 13, Name: "connections ended by an order to the server", Quick: true, inject: terminate, On: single(noticed, nothing)},
	{Number: 15, Name: "the server killed with -9", Quick: true, Does: Cuts, inject: restart(server.Kill), On: single(standing, any_)},
	// It may hold one of the server's own latches, or a row of the lease table, for which all others wait.
	{Number: 16, Name: "a backend frozen longer than the lease", Does: Cuts, inject: freezeBackend, On: where{
		fleet.Postgres: {Effect: VictimAtLeast, Back: time.Second, AtEnd: true}, fleet.Leases: any_, fleet.PooledLeases: any_}},
	{Number: 20, Name: "a standby answers", inject: standby, On: where{fleet.Postgres: noticed, fleet.Leases: atMost}},
	{Number: 21, Name: "PgBouncer in transaction mode", Quick: true, Does: Nothing, inject: transactionPooler, On: where{fleet.Postgres: nothing}},
	{Number: 24, Name: "the server's lock table full", Quick: true, Does: Cuts, inject: lockTableFull, On: where{fleet.Postgres: nothing}},
	{Number: 25, Name: "the role may not connect", Quick: true, inject: lockOut, On: where{
		fleet.Postgres: noticed, fleet.MariaDB: noticed, fleet.Leases: atMost, fleet.MariaDBLeases: atMost}},
	{Number: 30, Name: "SIGTERM, one after the other", Quick: true, inject: rollingRestart, On: everywhere(any_)},
	{Number: 31, Name: "orderly restart of the server", Quick: true, Does: Cuts, inject: restart(server.Stop), On: single(stopped, any_)},
	{Number: 32, Name: "the server frozen longer than the lease", Does: Cuts, inject: freezeServer, On: networked(standing, standing)},
	{Number: 33, Name: "read_only switched on and off", Quick: true, Does: Cuts, inject: readOnly, On: where{fleet.MariaDB: standing, fleet.MariaDBLeases: standing}},
	{Number: 34, Name: "the pooler killed, and another one started", Quick: true, inject: replacePooler, On: where{fleet.PooledLeases: nothing}},
	{Number: 35, Name: "a writer locks the file for a moment", Quick: true, Does: Cuts, inject: lockFile((*Injector).briefly), On: where{fleet.SQLite: nothing}},
	{Number: 36, Name: "a writer locks the file longer than the lease", Does: Cuts, inject: lockFile((*Injector).long), On: where{fleet.SQLite: standing}},
	{Number: 37, Name: "a TiDB server ended for a moment", Quick: true, Does: Cuts, inject: restartOne((*Injector).briefly), On: where{fleet.TiDB: any_}},
	{Number: 38, Name: "a TiDB server away longer than the lease", Does: Cuts, inject: restartOne((*Injector).long), On: where{fleet.TiDB: any_}},
}

// Rows returns the rows that exist in a store, by number.
func Rows(store fleet.Store) (rows []Row) {
	for _, r := range table {
		if _, ok := r.On[store]; ok {
			rows = append(rows, r)
		}
	}
	return rows
}

// Numbers returns the numbers of all rows that do this to their victims.
func Numbers(does ...Does) (numbers []int) {
	for _, r := range table {
		for _, d := range does {
			if r.Does == d {
				numbers = append(numbers, r.Number)
			}
		}
	}
	return numbers
}
