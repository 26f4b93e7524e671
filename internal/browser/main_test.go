package browser_test

import (
	"log/slog"
	"os"
	"testing"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	subprocess.MainReader(clientRole, beClient)
	code := pgtest.Main(m)
	if err := closeChromium(); err != nil {
		println(err.Error())
		code = max(code, 1)
	}
	os.Exit(leaktest.Check(code))
}
