// Package simulation runs the engine of package sqllock against a simulated
// server, in virtual time. It uses the exported API of sqllock only.
//
// It has no product files.
package simulation

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
