package idempotency_test

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A migration tool may split at semicolons, or take each statement as it is.
func TestSchema(t *testing.T) {
	t.Parallel()
	for _, d := range []sqllock.Dialect{sqllock.PostgreSQL, sqllock.MySQL, sqllock.SQLite} {
		statements := idempotency.Schema(d)
		if len(statements) == 0 {
			t.Errorf("%s has no statement", d)
		}
		for _, statement := range statements {
			if !strings.HasPrefix(statement, "CREATE ") || strings.Contains(statement, ";") {
				t.Errorf("%s: not one statement: %s", d, statement)
			}
		}
	}
	defer func() {
		if text, _ := recover().(string); !strings.HasPrefix(text, "idempotency: ") {
			t.Errorf("another dialect: %q, want a panic that names the package", text)
		}
	}()
	idempotency.Schema("oracle")
}
