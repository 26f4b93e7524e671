package keys

import "github.com/latchkey-go/latchkey/sqllock"

// What the page's Go declares, for the tests of this package. The page's own
// text is that of the Examples of package sqllock.
const (
	classOrder int32 = 2

	billing        = 7000
	taskInvoices   = billing
	taskReminders  = billing + 1
	taskStatements = billing + 2
)

func compositeKey(class, object int32) sqllock.Key {
	return sqllock.ID(int64(class)<<32 | int64(uint32(object)))
}
