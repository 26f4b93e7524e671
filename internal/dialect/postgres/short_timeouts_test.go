package postgres

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A server that does not respond is not asked for its settings, on a connection
// that might hang as well.
func TestSilenceIsNotExplained(t *testing.T) {
	t.Parallel()
	db := openPool(t, "pgx", pgtest.Database(t)+"&statement_timeout=900")
	for _, tt := range []struct {
		err   error
		opens int
	}{
		{dbconn.ErrSilence, 0},
		{&dialect.Failure{Kind: dialect.Gone, Reason: "the connection was closed"}, 1},
	} {
		err := ExplainTimeout(t.Context(), db, tt.err)
		if n := db.Stats().OpenConnections; n != tt.opens {
			t.Errorf("%d connections after %q, want %d", n, tt.err, tt.opens)
		}
		if explained := err.Error() != tt.err.Error(); explained != (tt.opens > 0) {
			t.Errorf("%q is explained: %v", tt.err, err)
		}
	}
}
