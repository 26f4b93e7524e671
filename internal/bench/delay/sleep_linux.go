package delay

import (
	"time"

	"golang.org/x/sys/unix"
)

// sharpenTimer lets the kernel wake this thread when it is due: by default it
// may take 50 µs longer, to wake several at once.
func sharpenTimer() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

func sleepUntil(due time.Time) {
	for d := time.Until(due); d > 0; d = time.Until(due) {
		wait := unix.NsecToTimespec(d.Nanoseconds())
		_ = unix.Nanosleep(&wait, nil) // a signal ends it early
	}
}
