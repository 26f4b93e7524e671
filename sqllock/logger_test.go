package sqllock

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

// A logger may call methods of the Session.
func TestLoggerMayCallTheSession(t *testing.T) {
	var session *Session
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		session = s
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
	}, WithLogger(slog.New(callingHandler{slog.DiscardHandler, func() {
		if session != nil {
			_ = session.Stats()
		}
	}})))
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
