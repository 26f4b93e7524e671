package pgtest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

func TestMain(m *testing.M) {
	subprocess.Main(orphanRole, startAndWaitForDeath)
	code := Main(m)
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
