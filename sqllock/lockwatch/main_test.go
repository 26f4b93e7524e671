package lockwatch_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
)

func TestMain(m *testing.M) {
	runRegisteringHolder() // does not return in such a process
	dbtest.Main(m)
}

// What these tests share with those of sqllock.
var (
	session  = dbtest.Session
	mustLock = dbtest.Lock
)
