package session

import (
	"os"
	"testing"

	"github.com/latchkey-go/latchkey/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }
