// Package bound lets tests lengthen the bounds that the kit sets on its own
// calls to a database. A bound such as "the database responds within 0.9 s" is
// right for a service, and wrong for a test on a machine that others keep busy:
//
//	func TestMain(m *testing.M) {
//		bound.Lengthen()
//		…
//	}
//
// Programs that do not call Lengthen have the bounds that the code states.
package bound

import (
	"sync/atomic"
	"time"
)

// factor is what a lengthened bound is multiplied by. A bound of a second then
// ends nothing but a hang.
const factor = 30

var lengthened atomic.Bool

// Lengthen makes all bounds of this process thirty times as long. A TestMain
// calls it before the tests.
func Lengthen() { lengthened.Store(true) }

// Of returns d, or more after Lengthen.
//
// In the virtual time of testing/synctest it returns d, because no machine is
// too slow there. That time begins with the year 2000.
func Of(d time.Duration) time.Duration {
	if !lengthened.Load() || time.Now().Year() < 2020 {
		return d
	}
	return factor * d
}
