package dialect

import "strings"

// wordsOfStates are the meanings of SQLSTATEs for which a person can do
// something. Drivers' own texts would say more, but may name keys and hosts.
var wordsOfStates = map[string]string{
	"25006": "the transaction is read-only (default_transaction_read_only, or a standby)",
	"25P03": "the server ended the transaction, which was idle for too long (idle_in_transaction_session_timeout)",
	"25P04": "the server ended the transaction, which took too long (transaction_timeout)",
	"40001": "the transaction met a concurrent one, and can be tried again",
	"40P01": "the transaction was in a deadlock, and can be tried again",
	"28000": "the server rejected the user, by pg_hba.conf (which may demand TLS) or because the role may not log in",
	"42501": "the role lacks a right to a table, a schema or a function (GRANT)",
	"53100": "the server's disk is full",
	"53200": "the server's table of locks is full (max_locks_per_transaction)",
	"53300": "the server has no connection to spare, or the role or the database has reached its CONNECTION LIMIT",
	"53400": "a limit in the server's configuration was exceeded, such as temp_file_limit",
	"55P03": "a row or a table was locked for too long (lock_timeout)",
	"57014": "the statement was cancelled, or took too long (statement_timeout)",
	"57P01": "the server ended the session: it stops or restarts, or a program has called pg_terminate_backend",
	"57P02": "the server ended all sessions, since one of its processes crashed",
	"57P03": "the server is starting or stopping",
	"57P05": "the server ended the session, which was idle for too long (idle_session_timeout)",
}

// inWords returns the meaning of the most frequent SQLSTATEs, as the beginning
// of a reason.
func inWords(state string) string {
	switch words := wordsOfStates[state]; {
	case words != "":
		return words + ": "
	case strings.HasPrefix(state, "28"):
		return "the server rejected the user or the password: "
	case strings.HasPrefix(state, "3D"):
		return "the server has no such database: "
	}
	return "the server answered "
}
