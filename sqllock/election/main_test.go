package election_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
)

func TestMain(m *testing.M) {
	runCandidate() // does not return in a process that is a candidate of TestTakeOver
	dbtest.Main(m)
}
