// Package lockwatch reports who holds the locks of a database, and who waits for
// them:
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
// can also end a stuck session. An [Inspector] takes many Snapshots at a low cost, a
// [Diagnosis] finds in them what Watch finds, and [Terminate] ends one session.
//
// Both see PostgreSQL's advisory locks, lease tables, and the locks of MariaDB and
// MySQL. On PostgreSQL the tables of [Schema] add what a Session with
// [sqllock.WithRegistry] writes there.
package lockwatch
