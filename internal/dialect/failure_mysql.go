package dialect

import (
	"slices"
	"strconv"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

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
