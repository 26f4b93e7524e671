package databases

import (
	"net/http"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
)

// A database that cancels the question for its kind is not taken for one that is
// not supported.
func TestIdempotencyNamesShortTimeout(t *testing.T) {
	eachStage(t, func(t *testing.T, s stage) {
		cancelled := false
		db := intercepted(t, lockertest.Orders{Driver: s.driver, DSN: s.dsn}, func(query string, carryOut func() error) error {
			if !cancelled && strings.Contains(query, "version()") {
				cancelled = true
				return timeoutError{}
			}
			return carryOut()
		})
		once := idempotencyStatus(t, s.on(db))
		if status, log, _ := once(); status == http.StatusOK || !strings.Contains(log, "(statement_timeout)") {
			t.Errorf("status %d, and the log does not name statement_timeout: %s", status, log)
		}
		if status, log, _ := once(); status != http.StatusOK {
			t.Errorf("after that: status %d, %s", status, log)
		}
	})
}

// A timeoutError is that of a statement that statement_timeout has cancelled.
type timeoutError struct{}

func (timeoutError) Error() string    { return "cancelled" }
func (timeoutError) SQLState() string { return "57014" }
