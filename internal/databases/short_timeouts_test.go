package databases

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Open names the timeout by which the server has ended its connections, also
// with a driver that has learnt only that they are gone.
func TestOpenNamesShortTimeout(t *testing.T) {
	t.Parallel()
	tests := []struct {
		setting, value string
		at             string // the first statement before which the server has ended the connection
	}{
		{"idle_session_timeout", "900ms", "pg_is_in_recovery"},
		{"idle_in_transaction_session_timeout", "900ms", "ROLLBACK"},
	}
	for _, tt := range tests {
		t.Run(tt.setting, func(t *testing.T) {
			eachStage(t, func(t *testing.T, s stage) {
				waited := false
				db := intercepted(t, lockertest.Orders{Driver: s.driver, DSN: s.dsn}, func(query string, carryOut func() error) error {
					if !waited && strings.Contains(query, tt.at) {
						waited = true
						lockertest.Eventually(t, "the server ends a connection", func() bool {
							return number(t, s.admin, "SELECT count(*) FROM pg_stat_activity WHERE usename = '"+s.role+"'") < 2
						})
					}
					return carryOut()
				})
				locks, err := sqllock.Open(t.Context(), db)
				if err == nil {
					_ = locks.Close()
				}
				if !errors.Is(err, sqllock.ErrUnavailable) || !strings.Contains(err.Error(), tt.setting+" is less than 1s here: raise it") {
					t.Errorf("Open: %v, want ErrUnavailable that names %s", err, tt.setting)
				}
				s.leavesNothing(t)
			}, tt.setting+" = '"+tt.value+"'")
		})
	}
}

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
