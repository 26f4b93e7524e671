package lockdoctor

import (
	"fmt"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A timeout of the server does harm if it is shorter than least.
type timeout struct {
	name        string
	unit, least time.Duration
	harm        string
}

// timeouts judges the settings that a new connection has. Those that are 0, or
// that the server does not have, do no harm.
func (s *subject) timeouts(settings map[string]setting, limits []timeout) (fine string) {
	for _, l := range limits {
		is := settings[l.name]
		number, err := strconv.ParseFloat(is.value, 64)
		lasts := time.Duration(number * float64(l.unit))
		if err != nil || lasts <= 0 || lasts >= l.least {
			continue
		}
		words, fix := is.origin()
		if s.dialect == sqllock.MySQL {
			words, fix = "set for the server, or by the connection string", "SET GLOBAL "+l.name+" to more than the lease, in the server's configuration too; or take it out of the connection string."
		}
		s.warn(fmt.Sprintf("%s is %v (%s): %s", l.name, lasts, words, l.harm), fix)
	}
	return fmt.Sprintf("no timeout of a new connection is shorter than what locks need (lease %v)", s.lease)
}
