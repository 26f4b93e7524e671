package connectmw_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }
