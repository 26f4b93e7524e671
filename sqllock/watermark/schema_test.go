package watermark_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// Schema returns one statement, which creates the table. It has no semicolon,
// so that tools may split at semicolons. The slice belongs to the caller. An
// unknown dialect is a mistake of the programmer.
func TestSchema(t *testing.T) {
	t.Parallel()
	for _, d := range []sqllock.Dialect{sqllock.PostgreSQL, sqllock.SQLite, sqllock.MySQL} {
		before := slices.Clone(watermark.Schema(d))
		got := watermark.Schema(d)
		if len(got) != 1 || strings.Contains(got[0], ";") ||
			!strings.HasPrefix(got[0], "CREATE TABLE IF NOT EXISTS latchkey_watermarks (") || strings.Count(got[0], "CREATE") != 1 {
			t.Fatalf("%s: %q", d, got)
		}
		got[0] = "DROP TABLE work"
		if after := watermark.Schema(d); !slices.Equal(after, before) {
			t.Errorf("%s: %q, want %q", d, after, before)
		}
	}
	httptesting.WantPanic(t, "watermark", "oracle", func() { watermark.Schema("oracle") })
}
