// Package simulation tests package sqllock in virtual time.
//
// A world has one simulated server and two or three clients. Each client is a
// process with a real Session. A plan says which calls the clients make and
// which faults happen. The world checks at every moment what docs/safety.md
// promises, by what the callers and the server see.
//
// A scripted test has the same server without a plan. It makes each call and each
// fault itself: see script.
//
// All tests use the exported API of sqllock only. Their driver brings the dialect,
// and the dialect the clock of the client's machine. See dialect.Driver and
// dialect.BootClock.
package simulation

import (
	"os"
	"testing"

	"github.com/latchkey-go/latchkey/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }
