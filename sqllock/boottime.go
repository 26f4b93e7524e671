package sqllock

import "time"

// bootOffset is how far the clock that goes on while the system is suspended is ahead
// of the monotonic one. It changes in a suspend only, and reading that clock is
// a system call: it is done now and then. An offset from before a suspend is too small,
// and so makes a deadline come too early, never too late.
type bootOffset struct {
	offset time.Duration
	read   time.Duration // when; 0: never
}

// bootEvery is how old an offset may be.
const bootEvery = 50 * time.Millisecond

func (o *bootOffset) refresh(bootTime func() time.Duration) {
	if o.read != 0 && now()-o.read < bootEvery {
		return
	}
	boot := bootTime() // first: what passes until the other clock is read makes the offset smaller
	o.read = now()
	o.offset = boot - o.read
}
