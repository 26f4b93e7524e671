package session

import "time"

// start is the origin of Now, so that a moment fits into a Duration.
var start = time.Now()

// Now returns the time by the monotonic clock. It is never 0, so 0 can mean
// "never".
func Now() time.Duration { return time.Since(start) + 1 }

// forever is a time that never comes.
const forever = time.Duration(1<<63 - 1)

// A bootOffset is how far the boot clock is ahead of the monotonic clock. The
// boot clock goes on while the system is suspended, so the offset changes in a
// suspend only.
//
// To read the boot clock is a system call, so it is read now and then. An
// offset from before a suspend is too small. It makes a deadline come too
// early, never too late.
type bootOffset struct {
	offset time.Duration
	read   time.Duration // when; 0: never
}

// bootEvery is how old an offset may be.
const bootEvery = 50 * time.Millisecond

// refresh reads the boot clock if the offset is old.
func (o *bootOffset) refresh(bootTime func() time.Duration) {
	if o.read != 0 && Now()-o.read < bootEvery {
		return
	}
	boot := bootTime() // first: the time until the other clock is read makes the offset smaller
	o.read = Now()
	o.offset = boot - o.read
}
