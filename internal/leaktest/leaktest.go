// Package leaktest ends a TestMain with a look for goroutines that the tests
// have left behind:
//
//	func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }
package leaktest

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// patience is how long Check waits for goroutines that are about to end. A pool
// of pgx leaves one that sleeps for half a second after the pool was closed, and
// a busy machine makes that longer. A goroutine that leaked never ends.
const patience = 30 * time.Second

// Check returns code, the exit code of the tests. If the tests have passed and
// goroutines remain that ignored does not name, it prints these and returns 1.
func Check(code int, ignored ...goleak.Option) int {
	if code != 0 {
		return code
	}
	err := Find(ignored...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Find returns an error that shows the goroutines which remain, other than those
// of the testing package and those that ignored names.
func Find(ignored ...goleak.Option) error {
	for began := time.Now(); ; {
		err := goleak.Find(ignored...) // it waits a little itself
		if err == nil || time.Since(began) > patience {
			return err
		}
	}
}
