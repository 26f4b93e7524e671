package dialect

import (
	"slices"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

var (
	// mysqlGone are the errors that end a session or keep one from beginning.
	// After another error the engine calls Held, which also finds a session
	// that is gone.
	mysqlGone = []uint16{
		errcode.MySQLTooMany, errcode.MySQLTooManyOfOne, errcode.MySQLUserLimit, errcode.MySQLShutdown, errcode.MySQLOfflineMode,
		1042, 1043, 1047, 1080, 1129, 1130, // handshake, a command that is not known just now, hosts
		1152, 1153, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161, 1184, // network
		1044, 1045, 1049, 1698, 1820, 1862, 3118, 3159, 4151, // accounts
		1927, 2006, 2013, 3169, 4031, // killed, or silent for too long
	}

	// mysqlFull are the errors of a server without memory for another lock.
	mysqlFull = []uint16{1037, 1038, 1041, 1206}
)

// mysqlFailure returns the failure that an error number means.
func mysqlFailure(number uint16, state string) *Failure {
	f := &Failure{Kind: Statement, State: state}
	switch {
	case slices.Contains(mysqlGone, number):
		f.Kind = Gone
	case slices.Contains(mysqlFull, number):
		f.Kind = Full
	}
	f.Permanent = slices.Contains(mysqlPermanent, number)
	f.Reason = mysqlInWords(number, state, f.Kind) + "error " + strconv.Itoa(int(number)) + ", SQLSTATE " + state
	return f
}

// mysqlPermanent are the errors that last until a person changes an account, a
// right or the name of the database.
var mysqlPermanent = []uint16{
	errcode.MySQLDenied, errcode.MySQLNoAccess, errcode.MySQLNoDatabase,
	1130, 1045, 1698, 1820, 1862, 3118, 3159, 4151, // hosts, accounts
}

// Crowded begins the reason of a server or an account that can have no more
// connections.
const Crowded = "the server has no connection to spare"

// mysqlInWords returns the meaning of the most frequent errors, as the
// beginning of a reason.
func mysqlInWords(number uint16, state string, kind Kind) string {
	switch {
	case number == errcode.MySQLTooMany, number == errcode.MySQLTooManyOfOne, number == errcode.MySQLUserLimit:
		return Crowded + ": "
	case number == errcode.MySQLShutdown, number == errcode.MySQLOfflineMode:
		return "the server is stopping, or takes no users: "
	case number == errcode.MySQLKilled:
		return "the statement was interrupted: "
	case number == errcode.MySQLDenied:
		return "the user may not do this with latchkey's tables: run the statements of Schema(MySQL) and FenceSchema(MySQL) once as a user who may create them," +
			" and grant it SELECT, INSERT, UPDATE and DELETE: "
	case number == errcode.MySQLNoAccess:
		return "the user has no right to this database: grant it one: "
	case number == 4151, number == 3118:
		return "the server has locked the account: "
	case strings.HasPrefix(state, "28"):
		return "the server rejected the user or the password: "
	case number == errcode.MySQLNoDatabase:
		return "the server has no such database: "
	case kind == Full:
		return "the server has no memory for another lock: "
	}
	return "the server answered "
}
