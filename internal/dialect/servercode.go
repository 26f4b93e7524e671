package dialect

import "strconv"

// ServerCode returns the code that a database gave with err:
//
//	"42P01"       PostgreSQL's SQLSTATE
//	"mysql 1146"  an error number of MySQL or MariaDB
//	"sqlite 5"    a primary result code of SQLite
//	""            err is not a database's response to a statement
func ServerCode(err error) string {
	if number, _, ok := mysqlError(err); ok {
		return "mysql " + strconv.Itoa(int(number))
	}
	if code, ok := sqliteCode(err); ok {
		return "sqlite " + strconv.Itoa(code&0xff)
	}
	return SQLState(err)
}
