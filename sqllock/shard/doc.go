// Package shard spreads locks over several databases, for a fleet that has
// outgrown one server:
//
//	locks := shard.New(first, second) // *sqllock.Session each, in this order in every process
//	lock, err := locks.TryLock(ctx, sqllock.Namespace("export").Key(userID))
//	if err != nil {
//		return err
//	}
//	defer lock.Unlock()
//
// Each key belongs to one database, so its lock keeps the promises of that one.
// While a database is away, its own keys fail and no others.
package shard
