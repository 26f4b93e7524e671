package dialect

import (
	"slices"
	"strings"
)

// A meaning is what some codes of a database mean for a session and for people.
type meaning struct {
	system    string // as errcode.Of begins; "" for SQLSTATEs
	codes     string // with spaces between; a SQLSTATE or the beginning of some
	kind      Kind
	permanent bool   // until a person changes an account, a right or a file
	words     string // the beginning of a reason; drivers' own texts would say more, but may name keys and hosts
}

// meanings are those of the codes that end a session or keep one from beginning,
// and of those for which a person can do something. Any other code fails its
// statement alone.
//
// Of PostgreSQL, the severity decides what becomes of the session, but drivers show
// it in no common way. So Gone is for the classes that the server raises as FATAL on
// an established session. After Statement or Full of a batch the engine calls Held,
// and of another statement it sends a heartbeat. Both find a session that is gone.
var meanings = []meaning{
	{"", "08 57P", Gone, false, ""}, // connection; shutdown, crash, idle session
	{"", "25006", Statement, false, "the transaction is read-only (default_transaction_read_only, or a standby)"},
	{"", "25P03", Gone, false, "the server ended the transaction, which was idle for too long (idle_in_transaction_session_timeout)"},
	{"", "25P04", Gone, false, "the server ended the transaction, which took too long (transaction_timeout)"},
	{"", "40001", Statement, false, "the transaction met a concurrent one, and can be tried again"},
	{"", "40P01", Statement, false, "the transaction was in a deadlock, and can be tried again"},
	{"", "28", Gone, true, "the server rejected the user or the password"},
	{"", "28000", Gone, true, "the server rejected the user, by pg_hba.conf (which may demand TLS) or because the role may not log in"},
	{"", "3D", Gone, true, "the server has no such database"},
	{"", "42501", Statement, true, "the role lacks a right (GRANT): to connect to the database, or to a schema, a table or a function"},
	{"", "53100", Statement, false, "the server's disk is full"},
	{"", "53200", Full, false, "the server's table of locks is full (max_locks_per_transaction)"},
	{"", "53300", Gone, false, "the server has no connection to spare, or the role or the database has reached its CONNECTION LIMIT"},
	{"", "53400", Statement, false, "a limit in the server's configuration was exceeded, such as temp_file_limit"},
	{"", "55P03", Statement, false, "a row or a table was locked for too long (lock_timeout)"},
	{"", "57014", Statement, false, "the statement was cancelled, or took too long (statement_timeout)"},
	{"", "57P01", Gone, false, "the server ended the session: it stops or restarts, or a program has called pg_terminate_backend"},
	{"", "57P02", Gone, false, "the server ended all sessions, since one of its processes crashed"},
	{"", "57P03", Gone, false, "the server is starting or stopping"},
	{"", "57P05", Gone, false, "the server ended the session, which was idle for too long (idle_session_timeout)"},

	{"mysql", "1040 1203 1226", Gone, false, Crowded}, // of the server, of one user, or by the account's own limit
	{"mysql", "1053 3032", Gone, false, "the server is stopping, or takes no users"},
	{"mysql", "1042 1043 1047 1080 1129", Gone, false, ""},                               // handshake, a command that is not known just now, hosts
	{"mysql", "1152 1153 1154 1155 1156 1157 1158 1159 1160 1161 1184", Gone, false, ""}, // network
	{"mysql", "1927 2006 2013 3169 4031", Gone, false, ""},                               // killed, or silent for too long
	{"mysql", "1044", Gone, true, "the user has no right to this database: grant it one"},
	{"mysql", "1049", Gone, true, "the server has no such database"},
	{"mysql", "3118 4151", Gone, true, "the server has locked the account"},
	{"mysql", "1045 1698", Gone, true, "the server rejected the user or the password"},
	{"mysql", "1130 1820 1862 3159", Gone, true, ""}, // hosts, accounts
	{"mysql", "1037 1038 1041 1206", Full, false, "the server has no memory for another lock"},
	{"mysql", "1317", Statement, false, "the statement was interrupted"},
	{"mysql", "1142", Statement, true, "the user may not do this with latchkey's tables: run the statements of Schema(MySQL) and FenceSchema(MySQL) once as a user who may create them," +
		" and grant it SELECT, INSERT, UPDATE and DELETE"},

	{"sqlite", "5 6", Statement, false, BusyFile}, // SQLITE_BUSY, SQLITE_LOCKED
	{"sqlite", "8", Statement, false, "the database file, or its directory, can only be read"},
	{"sqlite", "10", Statement, false, "the database file could not be read or written: an error of the disk or file system"},
	{"sqlite", "11 26", Gone, true, BadFile}, // SQLITE_CORRUPT, SQLITE_NOTADB
	{"sqlite", "13", Full, false, "the disk is full, or the database file is as large as it may be"},
	{"sqlite", "14", Gone, false, NoFile + ": is its directory there, and may it be written to?"},
}

// Crowded begins the reason of a server or an account that can have no more
// connections.
const Crowded = "the server has no connection to spare"

// coded returns the failure that a code of errcode.Of means. state is the SQLSTATE.
func coded(code, state string) *Failure {
	system, number, ok := strings.Cut(code, " ")
	if !ok {
		system, number = "", code
	}
	m := meaningOf(system, number)
	f := &Failure{Kind: m.kind, State: state, Permanent: m.permanent}
	detail := "SQLSTATE " + state
	switch system {
	case "mysql":
		detail = "error " + number + ", " + detail
	case "sqlite":
		if f.Reason = m.words; m.words == "" {
			f.Reason = "SQLite answered with result code " + number
		}
		return f
	}
	if f.Reason = m.words + ": " + detail; m.words == "" {
		f.Reason = "the server answered " + detail
	}
	return f
}

// meaningOf returns the meaning of a code. Of several beginnings of a SQLSTATE the
// longest counts.
func meaningOf(system, code string) meaning {
	for n := len(code); n > 0 && (system == "" || n == len(code)); n-- {
		for _, m := range meanings {
			if m.system == system && slices.Contains(strings.Fields(m.codes), code[:n]) {
				return m
			}
		}
	}
	return meaning{kind: Statement}
}
