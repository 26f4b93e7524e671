// Package lockdoctor examines a database, its pool and the Sessions on it, and
// says what to change:
//
//	report, err := lockdoctor.Check(ctx, db, lockdoctor.WithSession(locks))
//	if err != nil {
//		return err // ctx has ended
//	}
//	fmt.Print(report) // state, check, reason and fix, one check after the other
//	os.Exit(report.ExitCode())
//
// [Check] changes nothing in the database, apart from [WithKeyedNamespace]. It
// asks which pooler is between, whether the server is the primary, how much room
// is left, and whether the tables of latchkey are complete. With [WithSession] it
// also reports whether a Session is connected and how much of its lease is left.
//
// A [Result] holds no key, id, host, user or connection string, so a report may
// be logged and shown.
package lockdoctor
