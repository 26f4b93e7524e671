package starve_test

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/starve"
)

func TestMain(m *testing.M) {
	starve.Main()
	os.Exit(m.Run())
}

// used is the processor time of children that have ended.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano())
}

// It takes the processor, and gives it back.
func TestLongStarve(t *testing.T) {
	// However busy the machine is, a long enough run gets its share.
	for d := 50 * time.Millisecond; ; d *= 2 {
		before := used(t)
		stop, err := starve.Start(2)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(d) // the length of the famine
		if err := stop(); err != nil && !errors.Is(err, starve.ErrIdle) {
			t.Fatal(err)
		}
		if took := used(t) - before; took >= 40*time.Millisecond {
			return
		} else if d > 5*time.Second {
			t.Fatalf("a process that should do nothing but count used %v", took)
		}
	}
}
