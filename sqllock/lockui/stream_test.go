package lockui

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A stream ends when its viewer has lost the right to see the page.
func TestStreamEndsWithTheRight(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, h *Handler, _ *fakeDatabase) {
		var revoked atomic.Bool
		h.options.authorize = func(*http.Request) bool { return !revoked.Load() }
		var ended atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.ServeHTTP(&client{header: make(http.Header)}, httptest.NewRequest(http.MethodGet, "/events?view=locks", nil))
			ended.Store(true)
		}()
		time.Sleep(10 * time.Minute)
		if ended.Load() {
			t.Fatal("the stream has ended while its viewer has the right")
		}
		revoked.Store(true)
		time.Sleep(authorizeAgain + 2*tick)
		synctest.Wait()
		if !ended.Load() {
			t.Error("the stream goes on without the right")
			_ = h.Close()
		}
		<-done
	})
}
