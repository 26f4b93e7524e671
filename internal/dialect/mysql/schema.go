package mysql

// secretsTable is the table of secret checks. No session uses it. It is there for
// lockdoctor, and for processes of an earlier release in the same fleet, which
// check secrets in it.
const secretsTable = `CREATE TABLE IF NOT EXISTS latchkey_secret_checks (
	class   INT NOT NULL, -- of a namespace
	fingerprint INT NOT NULL, -- of the secret that its keys are made with
	session VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- a lock that is held while it lives
	PRIMARY KEY (class, fingerprint, session)
) ENGINE = InnoDB`

// Schema returns the statements that create the table of sessions.
func Schema() []string { return []string{secretsTable} }
