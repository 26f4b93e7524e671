package dialect

import (
	"strconv"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

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
