package dialect

// SQLSTATEs of PostgreSQL that decide what is done.
const (
	featureNotSupported = "0A000"
	failedTransaction   = "25P02"
	readOnly            = "25006"
	forbidden           = "42501"
	undefinedColumn     = "42703"
	undefinedFunction   = "42883"
	undefinedTable      = "42P01"
	lockNotAvailable    = "55P03"
)
