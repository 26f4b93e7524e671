package handoff_test

import (
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/handoff"
	"github.com/latchkey-go/latchkey/sqllock"
)

// CarryBack copies what the original request does not have.
func TestCarryBack(t *testing.T) {
	t.Parallel()
	form := new(multipart.Form)
	r, inner := new(http.Request), &http.Request{MultipartForm: form, Pattern: "/inner"}
	handoff.CarryBack(r, inner)
	if r.MultipartForm != form || r.Pattern != "/inner" {
		t.Errorf("form %p, pattern %q; want those of the copy", r.MultipartForm, r.Pattern)
	}
	handoff.CarryBack(r, &http.Request{MultipartForm: new(multipart.Form), Pattern: "/other"})
	if r.MultipartForm != form || r.Pattern != "/inner" {
		t.Errorf("form %p, pattern %q; want those of before", r.MultipartForm, r.Pattern)
	}
}

// The end of a context counts with its cause. An early Unlock is no interruption.
func TestInterruptedBy(t *testing.T) {
	t.Parallel()
	lock, err := sqllock.NewMemory().TryLock(t.Context(), sqllock.Namespace("handoff").Key("a"))
	if err != nil {
		t.Fatal(err)
	}
	bound, end := lock.Bind(t.Context())
	defer end()
	if err := handoff.InterruptedBy(bound); err != nil {
		t.Errorf("while the lock is held: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := handoff.InterruptedBy(bound); err != nil {
		t.Errorf("after Unlock: %v", err)
	}
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := handoff.InterruptedBy(ctx); !errors.Is(err, why) {
		t.Errorf("after the end: %v, want the cause", err)
	}
}

type wrapped struct{ io.ReadCloser }

func (w wrapped) Beneath() io.ReadCloser { return w.ReadCloser }
func (wrapped) Taken() bool              { return false }

// Beneath looks through every wrapped body.
func TestBeneath(t *testing.T) {
	t.Parallel()
	body := io.NopCloser(strings.NewReader("x"))
	for name, outer := range map[string]io.ReadCloser{"bare": body, "one": wrapped{body}, "two": wrapped{wrapped{body}}} {
		if got := handoff.Beneath(outer); got != body {
			t.Errorf("%s: %v, want the body itself", name, got)
		}
	}
}
