// Package sqllock acquires locks that hold across a whole fleet, in the SQL
// database that the service already has:
//
//	locks, err := sqllock.Open(ctx, db) // once; db is a *sql.DB of any driver
//	…
//	lock, err := locks.TryLock(ctx, sqllock.Namespace("export").Key(userID))
//	if err != nil {
//		return err // ErrHeld: another caller has it, in this process or elsewhere
//	}
//	defer lock.Unlock()
//	return export(lock.Context()) // ends if the lock is lost
//
// A [Session] keeps all locks of a process on one connection of PostgreSQL,
// MariaDB or MySQL. In SQLite, and behind transaction poolers, locks are rows
// with a lease. [OnConn], [PerTx], [TryTx] and [LockTx] are for callers with a
// connection or transaction of their own, on PostgreSQL. They and the advisory
// locks of a Session exclude each other. [Fence] rejects the writes of a holder
// that has lost its lock unnoticed.
package sqllock
