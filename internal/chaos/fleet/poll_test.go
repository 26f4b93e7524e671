package fleet

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

func TestPoll(t *testing.T) {
	calls := 0
	err := Poll(t.Context(), time.Minute, "the third call", func(context.Context) (bool, error) {
		calls++
		return calls == 3, nil
	})
	if err != nil || calls != 3 {
		t.Errorf("%d calls, %v", calls, err)
	}
	never := func(context.Context) (bool, error) { return false, nil }
	if err := Poll(t.Context(), time.Millisecond, "nothing", never); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("waited without success: %v", err)
	}
	failing := func(context.Context) (bool, error) { return false, io.ErrUnexpectedEOF }
	if err := Poll(t.Context(), time.Minute, "an error", failing); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an error: %v", err)
	}
	for _, late := range []error{context.DeadlineExceeded, os.ErrDeadlineExceeded} {
		err := Poll(t.Context(), 10*time.Millisecond, "a dial", func(context.Context) (bool, error) { return false, late })
		if !errors.Is(err, ErrTimeout) || !errors.Is(err, late) {
			t.Errorf("a dial that sees the deadline first: %v", err)
		}
		err = Poll(t.Context(), time.Minute, "a call", func(context.Context) (bool, error) { return false, late })
		if errors.Is(err, ErrTimeout) || !errors.Is(err, late) {
			t.Errorf("a call with a deadline of its own: %v", err)
		}
	}
	ended, end := context.WithCancelCause(t.Context())
	end(io.ErrClosedPipe)
	if err := Poll(ended, time.Minute, "the end", never); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a context that has ended: %v", err)
	}
}
