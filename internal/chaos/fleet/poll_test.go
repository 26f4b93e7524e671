package fleet

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

func TestPoll(t *testing.T) {
	never := func(context.Context) (bool, error) { return false, nil }
	failing := func(context.Context) (bool, error) { return false, io.ErrUnexpectedEOF }
	if err := Poll(t.Context(), time.Minute, "an error", failing); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an error: %v", err)
	}
	for _, late := range []error{context.DeadlineExceeded, os.ErrDeadlineExceeded} {
		err := Poll(t.Context(), 10*time.Millisecond, "a dial", func(ctx context.Context) (bool, error) {
			end, _ := ctx.Deadline()
			<-time.After(time.Until(end) - time.Millisecond)
			return false, late
		})
		if !errors.Is(err, ErrTimeout) || !errors.Is(err, late) {
			t.Errorf("a dial that sees the deadline first: %v", err)
		}
		err = Poll(t.Context(), time.Minute, "a call", func(context.Context) (bool, error) { return false, late })
		if errors.Is(err, ErrTimeout) || !errors.Is(err, late) {
			t.Errorf("a call with a deadline of its own: %v", err)
		}
	}
	looks := 0
	if err := Poll(t.Context(), time.Millisecond, "a look that is late", func(ctx context.Context) (bool, error) {
		if looks++; looks == 1 {
			<-ctx.Done()
			return false, ctx.Err()
		}
		return true, ctx.Err()
	}); err != nil {
		t.Errorf("a process that stood still: %v", err)
	}
	ended, end := context.WithCancelCause(t.Context())
	end(io.ErrClosedPipe)
	if err := Poll(ended, time.Minute, "the end", never); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a context that has ended: %v", err)
	}
}
