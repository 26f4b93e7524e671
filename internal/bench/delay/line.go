package delay

import (
	"net"
	"runtime"
	"sync"
	"time"
)

// A line is one direction of all connections.
//
// Invariant: parcels are in the queue in the order in which they are due, since
// all take the same time. Two readers may pass each other by microseconds.
type line struct {
	delay time.Duration

	mu    sync.Mutex // protects queue
	more  sync.Cond  // queue is no longer empty
	queue []parcel
}

// A parcel is what one read brought; without data it is the connection's end.
type parcel struct {
	to   net.Conn
	data []byte
	due  time.Time
}

func newLine(d time.Duration) *line {
	l := &line{delay: d}
	l.more.L = &l.mu
	return l
}

func (l *line) send(p parcel) {
	l.mu.Lock()
	l.queue = append(l.queue, p)
	l.mu.Unlock()
	l.more.Signal()
}

// deliver hands over each parcel when it is due. It sleeps in the kernel, on a
// thread of its own, since Go's timers round a sleep up to a millisecond in an
// idle process.
func (l *line) deliver() {
	runtime.LockOSThread()
	sharpenTimer()
	var batch []parcel
	for {
		l.mu.Lock()
		for len(l.queue) == 0 {
			l.more.Wait()
		}
		batch, l.queue = l.queue, batch[:0]
		l.mu.Unlock()
		for i := range batch {
			sleepUntil(batch[i].due)
			batch[i].handOver()
			batch[i] = parcel{}
		}
	}
}

// handOver ignores errors: the other direction's read finds them too.
func (p *parcel) handOver() {
	if p.data == nil {
		_ = p.to.Close()
		return
	}
	_, _ = p.to.Write(p.data)
}
