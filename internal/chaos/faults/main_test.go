package faults

import (
	"os"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
