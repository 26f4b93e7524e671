package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

var (
	// endingSignals end this program unless it catches them.
	endingSignals = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

	// passedSignals are passed on to the command as well.
	passedSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT}
)

// signals are those that this program gets. Before the command runs, one that
// ends a program ends the wait for the lock. Then all are passed on.
type signals struct{ c chan os.Signal }

// catchSignals begins to catch the signals that end a program. One that the
// parent ignores stays ignored, as nohup wants it, also in the command.
func catchSignals() *signals {
	s := &signals{c: make(chan os.Signal, 16)}
	s.notify(endingSignals)
	return s
}

func (s *signals) notify(wanted []os.Signal) {
	for _, w := range wanted {
		if !signal.Ignored(w) {
			signal.Notify(s.c, w)
		}
	}
}

func (s *signals) stop() { signal.Stop(s.c) }

// endOn returns a context that a signal ends. Its cause has the exit code, and
// is the error of release. After release, which may be called again, the
// signals stay in s.c.
func (s *signals) endOn(parent context.Context) (ctx context.Context, release func() error) {
	ctx, cancel := context.WithCancelCause(parent)
	released, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case got := <-s.c:
			cancel(silent(128 + int(got.(syscall.Signal))))
		case <-released:
		}
	}()
	return ctx, sync.OnceValue(func() error {
		close(released)
		<-done
		err := context.Cause(ctx)
		cancel(nil)
		s.notify(passedSignals)
		return err
	})
}
