package protocol

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	dbtest.Main(m)
}
