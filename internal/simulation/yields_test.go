package simulation

import (
	"context"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A process that has kept a key for a second leaves it to other processes,
// however its own callers come back for it: also one of several keys. A Limiter
// lets one of its requests at a time wait.
func TestHandOverYieldsToOtherProcesses(t *testing.T) {
	type call = func(*sqllock.Session, context.Context, []sqllock.Key) (*sqllock.Lock, error)
	var (
		lock call = func(s *sqllock.Session, ctx context.Context, k []sqllock.Key) (*sqllock.Lock, error) {
			return s.LockAny(ctx, k...)
		}
		read call = func(s *sqllock.Session, ctx context.Context, k []sqllock.Key) (*sqllock.Lock, error) {
			return s.RLock(ctx, k[0])
		}
	)
	tests := []struct {
		name     string
		keys     []sqllock.Key
		callers  []call
		hold     time.Duration
		oneWaits bool
		opts     []sqllock.Option
	}{
		{"two callers", ids(1), []call{lock, lock}, 90 * time.Millisecond, false, nil},
		{"one caller that does not wait for Unlock", ids(1), []call{lock}, 90 * time.Millisecond, false, []sqllock.Option{sqllock.WithAsyncUnlock()}},
		{"a reader and a writer", ids(1), []call{lock, read}, 1100 * time.Millisecond, false, nil},
		{"a reader and a writer with short holds", ids(1), []call{lock, read}, 90 * time.Millisecond, false, nil},
		{"two keys", ids(1, 2), []call{lock, lock, lock, lock, lock, lock}, 90 * time.Millisecond, false, nil},
		{"two keys, one waits", ids(1, 2), []call{lock, lock, lock, lock, lock, lock}, 90 * time.Millisecond, true, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
				ctx, cancel := context.WithCancel(background)
				defer cancel()
				line := make(chan struct{}, 1)
				for i, acquire := range tt.callers {
					next := func() (*sqllock.Lock, error) {
						if tt.oneWaits {
							line <- struct{}{}
							defer func() { <-line }()
						}
						return acquire(s, ctx, tt.keys)
					}
					go func() {
						for l, err := next(); err == nil; l, err = next() {
							time.Sleep(tt.hold + time.Duration(i)*time.Millisecond)
							_ = l.Unlock()
						}
					}()
				}
				time.Sleep(50 * time.Millisecond)
				ended, end := context.WithTimeout(background, 5*fairness)
				defer end()
				l, err := st.another(t).LockAny(ended, tt.keys...)
				wantErr(t, "LockAny of another process", err, nil)
				mustUnlock(t, l)
			}, tt.opts...)
		})
	}
}
