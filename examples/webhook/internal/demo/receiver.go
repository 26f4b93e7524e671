package demo

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// role is the role of a receiver's process.
const role = "receiver"

// The points at which a receiver can be made to kill itself.
const (
	BeforeCommit = "before COMMIT" // the effect is done and not committed
	AfterCommit  = "after COMMIT"  // the effect is committed, and the sender does not know
)

// A crash is the fault that is injected: a receiver kills itself, as kill -9 does,
// when it comes to a point for the N-th time. The zero value never does.
type crash struct {
	Point string
	N     int
}

// A Config is the configuration of a receiver.
type Config struct {
	DatabaseURL string
	Secret      string        // shared with the sender
	Wait        time.Duration // how long a duplicate waits; 0: it is rejected
	Work        time.Duration // how long an effect takes
}

// A Receiver is a receiver's configuration, and what the demonstration adds to it.
type Receiver struct {
	Config

	Crash crash

	serving func() // called in a goroutine when the receiver serves, if not nil

	mu sync.Mutex // protects Crash.N and standard output
}

// A line is what a receiver reports to its parent, as JSON.
type line struct {
	Address string `json:"address,omitempty"`
	Crash   string `json:"crash,omitempty"`
}

// Serving reports where the receiver serves.
func (r *Receiver) Serving(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report(line{Address: address})
	if r.serving != nil {
		go r.serving()
	}
}

// At ends the process if it is to crash at this point. A nil Receiver never does.
func (r *Receiver) At(point string) {
	if r == nil || r.Crash.Point != point {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Crash.N--; r.Crash.N == 0 {
		r.report(line{Crash: point})
		subprocess.Crash()
	}
}

func (r *Receiver) report(l line) {
	_ = json.NewEncoder(os.Stdout).Encode(l) // if the parent has ended, this process ends too
}

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 15 * time.Second
)

// A process is a receiver, as its parent sees it.
type process struct {
	*subprocess.Process

	address string
	lines   chan line // what it reports; closed when it has ended
}

// startProcess starts a receiver, and waits until it serves.
func startProcess(ctx context.Context, r *Receiver) (*process, error) {
	started, err := subprocess.Start(role, r)
	if err != nil {
		return nil, err
	}
	p := &process{Process: started, lines: make(chan line, 2)}
	go p.follow()
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case l, ok := <-p.lines:
		if ok {
			p.address = l.Address
			return p, nil
		}
		err = errors.New("a receiver did not start")
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = errors.New("a receiver does not report where it serves")
	}
	return nil, errors.Join(err, p.stop())
}

// follow reads what the receiver reports until it ends.
func (p *process) follow() {
	defer close(p.lines)
	for lines := json.NewDecoder(p.Stdout); ; {
		var l line
		if lines.Decode(&l) != nil {
			return
		}
		p.lines <- l
	}
}

// stop stops the receiver. How it ends does not matter, if it ends.
func (p *process) stop() error {
	if err := p.Stop(stopTimeout); errors.Is(err, subprocess.ErrKilled) {
		return err
	}
	return nil
}
