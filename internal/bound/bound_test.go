package bound

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestOf(t *testing.T) {
	if got := Of(time.Second); got != time.Second {
		t.Errorf("Of(1s) = %v before Lengthen, want 1s", got)
	}
	Lengthen()
	t.Cleanup(func() { lengthened.Store(false) })
	if got := Of(time.Second); got != 30*time.Second {
		t.Errorf("Of(1s) = %v after Lengthen, want 30s", got)
	}
	synctest.Test(t, func(t *testing.T) {
		if got := Of(time.Second); got != time.Second {
			t.Errorf("Of(1s) = %v in virtual time, want 1s", got)
		}
	})
}
