package dialect

import (
	"slices"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

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

// Crowded begins the reason of a server or an account that can have no more
// connections.
const Crowded = "the server has no connection to spare"

// mysqlErrors are the errors that end a session or keep one from beginning, and
// those for which a person can do something. After another error the engine calls
// Held, which also finds a session that is gone.
var mysqlErrors = []struct {
	kind      Kind
	permanent bool // until a person changes an account, a right or the name of the database
	words     string
	numbers   []uint16
}{
	{Gone, false, Crowded, []uint16{errcode.MySQLTooMany, errcode.MySQLTooManyOfOne, errcode.MySQLUserLimit}},
	{Gone, false, "the server is stopping, or takes no users", []uint16{errcode.MySQLShutdown, errcode.MySQLOfflineMode}},
	{Gone, false, "", []uint16{
		1042, 1043, 1047, 1080, 1129, // handshake, a command that is not known just now, hosts
		1152, 1153, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161, 1184, // network
		1927, 2006, 2013, 3169, 4031, // killed, or silent for too long
	}},
	{Gone, true, "the user has no right to this database: grant it one", []uint16{errcode.MySQLNoAccess}},
	{Gone, true, "the server has no such database", []uint16{errcode.MySQLNoDatabase}},
	{Gone, true, "the server has locked the account", []uint16{3118, 4151}},
	{Gone, true, "the server rejected the user or the password", []uint16{1045, 1698}},
	{Gone, true, "", []uint16{1130, 1820, 1862, 3159}}, // hosts, accounts
	{Full, false, "the server has no memory for another lock", []uint16{1037, 1038, 1041, 1206}},
	{Statement, false, "the statement was interrupted", []uint16{errcode.MySQLKilled}},
	{Statement, true, "the user may not do this with latchkey's tables: run the statements of Schema(MySQL) and FenceSchema(MySQL) once as a user who may create them," +
		" and grant it SELECT, INSERT, UPDATE and DELETE", []uint16{errcode.MySQLDenied}},
}

// mysqlFailure returns the failure that an error number means.
func mysqlFailure(number uint16, state string) *Failure {
	f := &Failure{Kind: Statement, State: state, Reason: "the server answered "}
	for _, e := range mysqlErrors {
		if slices.Contains(e.numbers, number) {
			f.Kind, f.Permanent = e.kind, e.permanent
			if e.words != "" {
				f.Reason = e.words + ": "
			}
		}
	}
	f.Reason += "error " + strconv.Itoa(int(number)) + ", SQLSTATE " + state
	return f
}

// sqliteFailure returns the failure that a result code means.
func sqliteFailure(code int) *Failure {
	f := &Failure{Kind: Statement}
	switch code & 0xff {
	case errcode.SQLiteBusy, errcode.SQLiteLocked:
		f.Reason = BusyFile
	case errcode.SQLiteReadOnly:
		f.Reason = "the database file, or its directory, can only be read"
	case errcode.SQLiteIOError:
		f.Reason = "the database file could not be read or written: an error of the disk or file system"
	case errcode.SQLiteCorrupt, errcode.SQLiteNotADB:
		f.Permanent = true
		f.Kind, f.Reason = Gone, BadFile
	case errcode.SQLiteFull:
		f.Kind, f.Reason = Full, "the disk is full, or the database file is as large as it may be"
	case errcode.SQLiteCantOpen:
		f.Kind, f.Reason = Gone, NoFile+": is its directory there, and may it be written to?"
	default:
		f.Reason = "SQLite answered with result code " + strconv.Itoa(code)
	}
	return f
}
