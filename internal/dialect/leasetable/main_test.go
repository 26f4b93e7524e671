package leasetable

import (
	"os"
	"testing"

	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Check(pgtest.Main(m)))
}
