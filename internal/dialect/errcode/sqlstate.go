package errcode

// SQLSTATEs of PostgreSQL that decide what happens next.
const (
	FeatureNotSupported  = "0A000"
	FailedTransaction    = "25P02"
	ReadOnly             = "25006"
	DuplicateStatement   = "42P05"
	InvalidStatementName = "26000"
	InvalidSchema        = "3F000"
	Forbidden            = "42501"
	UndefinedColumn      = "42703"
	UndefinedFunction    = "42883"
	UndefinedTable       = "42P01"
	NotInState           = "55000" // of an object; at a login, of the database
	LockNotAvailable     = "55P03"
)
