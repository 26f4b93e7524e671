// Package election lets one process at a time lead, of all that stand for a
// key:
//
//	campaign := election.New(locks, sqllock.Namespace("leader").Key("mailer")) // locks is a *sqllock.Session
//	err := campaign.Run(ctx, func(ctx context.Context) error {
//		return sendMails(ctx) // ctx ends when this process is no longer the leader
//	})
//
// The leader holds the lock of the key. When it returns, crashes, or loses its
// database connection, another process leads. A frozen leader is replaced after
// the lease of its Session.
//
// [Campaign.Status] is for health checks. Its Token lets a system outside the
// database reject a past leader.
package election
