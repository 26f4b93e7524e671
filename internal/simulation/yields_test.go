package simulation

import (
	"context"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A process that has kept a key for a second leaves it to other processes,
// however its own callers come back for it.
func TestHandOverYieldsToOtherProcesses(t *testing.T) {
	type call = func(*sqllock.Session, context.Context, sqllock.Key) (*sqllock.Lock, error)
	var (
		lock call = (*sqllock.Session).Lock
		read call = (*sqllock.Session).RLock
	)
	tests := []struct {
		name    string
		callers []call
		hold    time.Duration
		opts    []sqllock.Option
	}{
		{"two callers", []call{lock, lock}, 90 * time.Millisecond, nil},
		{"one caller that does not wait for Unlock", []call{lock}, 90 * time.Millisecond, []sqllock.Option{sqllock.WithAsyncUnlock()}},
		{"a reader and a writer", []call{lock, read}, 1100 * time.Millisecond, nil},
		{"a reader and a writer with short holds", []call{lock, read}, 90 * time.Millisecond, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
				ctx, cancel := context.WithCancel(background)
				defer cancel()
				for _, acquire := range tt.callers {
					go func() {
						for {
							l, err := acquire(s, ctx, sqllock.ID(1))
							if err != nil {
								return
							}
							time.Sleep(tt.hold)
							_ = l.Unlock()
						}
					}()
				}
				time.Sleep(50 * time.Millisecond)
				ended, end := context.WithTimeout(background, 5*fairness)
				defer end()
				l, err := st.another(t).Lock(ended, sqllock.ID(1))
				wantErr(t, "Lock of another process", err, nil)
				mustUnlock(t, l)
			}, tt.opts...)
		})
	}
}
