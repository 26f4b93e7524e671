// Package lockwatch reports which sessions hold the advisory locks of a
// PostgreSQL database, and which sessions wait for them:
//
//	seen, err := lockwatch.Inspect(ctx, db) // db is a *sql.DB of any driver
//	if err != nil {
//		return err
//	}
//	fmt.Print(seen) // holders, waiters and cycles of waits, as tables
//	holders, waiters := seen.Find(sqllock.Namespace("export").Key(userID))
//
// [Inspect] takes one [Snapshot]. [Watch] takes one every few seconds and reports
// each [Finding]: a late heartbeat, a cycle of waits, a lock held for long. It
// can also end a stuck session.
//
// Both see the locks of every program and need no tables. The tables of [Schema]
// add what a Session with [sqllock.WithRegistry] writes there.
package lockwatch
