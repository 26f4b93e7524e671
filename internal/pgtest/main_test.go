package pgtest

import (
	"os"
	"testing"

	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

func TestMain(m *testing.M) {
	subprocess.Main(orphanRole, startAndWaitForDeath)
	os.Exit(leaktest.Check(Main(m)))
}
