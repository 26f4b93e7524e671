package subprocess_test

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// A process outlives the thread of the goroutine that calls Start, and any other
// thread that a goroutine ends.
func TestThreadEnds(t *testing.T) {
	type started struct {
		process *subprocess.Process
		thread  string // its directory in /proc
		err     error
	}
	results := make(chan started)
	const n = 4 // one may get the main thread, which does not end
	for range n {
		go func() {
			runtime.LockOSThread() // without Unlock the thread ends with the goroutine
			thread, err := os.Readlink("/proc/thread-self")
			if err != nil {
				results <- started{err: err}
				return
			}
			p, err := subprocess.Start("greeter", greeting{})
			results <- started{p, "/proc/" + thread, err}
		}()
	}
	mainThread := fmt.Sprintf("/proc/%d/task/%[1]d", os.Getpid())
	for range n {
		r := <-results
		if r.process == nil && os.IsNotExist(r.err) {
			continue // this system does not show its threads
		} else if r.err != nil {
			t.Error(r.err)
			continue
		}
		for deadline := time.Now().Add(time.Minute); r.thread != mainThread; runtime.Gosched() {
			if _, err := os.Stat(r.thread); err != nil {
				break
			} else if time.Now().After(deadline) {
				t.Error("the thread of a locked goroutine does not end")
				break
			}
		}
		endThreads()
		if err := r.process.Stop(time.Minute); err != nil {
			t.Errorf("asked to end, it ends with %v", err)
		}
	}
}

// endThreads ends threads that this process has for goroutines of any kind.
func endThreads() {
	var all sync.WaitGroup
	locked := make(chan struct{})
	for range 2 * runtime.GOMAXPROCS(0) {
		all.Go(func() {
			runtime.LockOSThread()
			<-locked
		})
	}
	close(locked)
	all.Wait()
}
