// Package sqllock takes locks that hold across a whole fleet, in the SQL
// database that the service already has:
//
//	locks, err := sqllock.Open(ctx, db) // once; db is a *sql.DB of whichever driver
//	…
//	lock, err := locks.TryLock(ctx, sqllock.Namespace("export").Key(userID))
//	if errors.Is(err, sqllock.ErrHeld) {
//		return errBusy // somebody else, here or in another process
//	}
//	if err != nil {
//		return err // the database is away: nothing was granted
//	}
//	defer lock.Unlock()
//	return export(lock.Context()) // ends if the lock is lost
//
// A [Session] holds every lock of the process on one connection of PostgreSQL, MariaDB or
// MySQL, or as rows with a lease in SQLite and behind transaction poolers; package shard joins
// several, for more than one server. On PostgreSQL [OnConn], [PerTx], [TryTx] and [LockTx] are for
// code that brings its own connection or transaction; all of these exclude each other, and a Session
// without [WithLeaseTable]. [NewMemory] is for tests. [Fence] has the database refuse the writes of a holder that
// has lost its lock and does not know.
package sqllock
