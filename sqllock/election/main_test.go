package election_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

func TestMain(m *testing.M) {
	subprocess.Main(role, stand) // in a candidate of TestLongTakeOver it does not return
	bound.Lengthen()
	dbtest.Main(m)
}
