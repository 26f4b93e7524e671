package lockwatch_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

func TestMain(m *testing.M) {
	subprocess.Main(registeringHolderRole, holdRegistered)
	bound.Lengthen()
	dbtest.Main(m)
}

// The tests of several packages share these.
var (
	session  = dbtest.Session
	mustLock = dbtest.Lock
)
