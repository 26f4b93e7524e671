package sqllock

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"
)

// A logger and an Observer may call methods of the Session. An Observer may lack
// any func.
func TestCalledBackMayCallTheSession(t *testing.T) {
	var session atomic.Pointer[Session]
	calls := func() {
		if s := session.Load(); s != nil {
			_ = s.Stats()
			_ = s.Connections()
		}
	}
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		session.Store(s)
		server.onOpen = func(n int) error {
			if n < 4 {
				return errGone
			}
			return nil
		}
		server.session(0).hooks(nil, func() error { return errGone })
		_, _ = s.TryLock(background, ID(1))
		time.Sleep(ticks)
		mustUnlock(t, mustTry(t, s, ID(1)))
	}, WithLogger(slog.New(callingHandler{slog.DiscardHandler, calls})), WithObserver(Observer{}), WithObserver(Observer{
		Exchanged: func(time.Duration, int) { calls() },
		Connected: calls,
		Lost:      func(string, int) { calls() },
	}))
}

// A callingHandler calls a function for each record.
type callingHandler struct {
	slog.Handler
	call func()
}

func (callingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h callingHandler) Handle(context.Context, slog.Record) error {
	h.call()
	return nil
}
