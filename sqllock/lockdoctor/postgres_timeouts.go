package lockdoctor

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// postgresTimeouts checks the timeouts that a new connection has. A Session sets
// its own on the connections of its locks. So these matter before that, while a
// Session proves that locks exclude, and for locks in transactions and on
// connections of the caller.
func postgresTimeouts(ctx context.Context, s *subject) Result {
	limits := []struct {
		name  string
		least time.Duration
		harm  string
	}{
		{"statement_timeout", time.Second, "statements end before a Session has connected, and before LockTx has waited"},
		{"lock_timeout", 100 * time.Millisecond, "LockTx gives up almost at once"},
		{"idle_session_timeout", s.lease, "the server ends pooled connections, with the locks of OnConn, sooner than a lease would"},
		{"idle_in_transaction_session_timeout", s.lease, "the server ends the transactions of PerTx and Fence sooner than a lease would"},
		{"transaction_timeout", s.lease, "the server ends transactions, with the locks of TryTx, LockTx and PerTx, sooner than a lease would"},
	}
	var names []string
	for _, l := range limits {
		names = append(names, dialect.Quoted(l.name))
	}
	var text string
	err := s.read(ctx, `SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('Name', name, 'Value', setting, 'Source', source)), '[]')::text
		FROM pg_catalog.pg_settings WHERE name IN (`+strings.Join(names, ",")+")", &text)
	if err != nil {
		return failed(err)
	}
	var settings []setting
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		return failed(dialect.ErrNonsense)
	}
	var findings []Result
	for _, l := range limits {
		for _, is := range settings {
			ms, err := strconv.ParseInt(is.Value, 10, 64)
			timeout := time.Duration(ms) * time.Millisecond
			if is.Name != l.name || err != nil || timeout == 0 || timeout >= l.least {
				continue
			}
			findings = append(findings, warning(fmt.Sprintf("%s is %v (%s): %s", l.name, timeout, is.origin(), l.harm), is.reset()))
		}
	}
	return worst(passed("no timeout of the role, the database or the server is shorter than what locks need (lease %v)", s.lease), findings)
}
