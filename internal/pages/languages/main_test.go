// Package languages tests docs/other-languages.md. It runs the programs of that
// page against Sessions.
package languages

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	dbtest.Main(m)
}
