package dialect

// A SecretChecker is a Session that can find out whether all sessions of the
// database make the keys of a namespace with one secret.
type SecretChecker interface {
	// UseSecret makes the session a user of c until its end. It reports a conflict
	// if another session uses the same Class with another Fingerprint. Then this
	// session is not a user. It changes nothing if the session is a user already.
	//
	// After an error the session may be a user of c or not. The error is like that
	// of Exchange.
	UseSecret(c SecretCheck) (conflict bool, err error)
}
