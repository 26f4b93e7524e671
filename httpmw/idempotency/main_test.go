package idempotency_test

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	crashingInstance()                             // does not return in a process that is to crash
	slog.SetDefault(slog.New(slog.DiscardHandler)) // a failure should not drown in what tests provoke
	code := pgtest.Main(m)
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
