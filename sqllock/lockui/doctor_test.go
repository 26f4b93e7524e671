package lockui

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// An examination begins with a POST only, and lasts as long as the response. For a
// while after it no other begins, however many viewers ask.
func TestDoctor(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, h *Handler, d *fakeDatabase) {
		for i, step := range []struct {
			after   time.Duration
			posts   int
			checks  int
			present string
		}{
			{0, 0, 0, "Nothing has been examined yet."},
			{0, 5, 1, "fine &amp; well"},
			{time.Second, 1, 1, "fine &amp; well"},
			{examinationPause, 3, 2, "fine &amp; well"},
		} {
			time.Sleep(step.after)
			var asking sync.WaitGroup
			for range step.posts {
				asking.Go(func() {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/doctor", nil))
					if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "doctor" {
						t.Errorf("status %d, Location %q", w.Code, w.Header().Get("Location"))
					}
				})
			}
			asking.Wait()
			body := request(h, "/doctor").Body.String()
			if d.checks != step.checks || !strings.Contains(body, step.present) {
				t.Errorf("step %d: %d examinations, want %d; no %q in %s", i, d.checks, step.checks, step.present, body)
			}
		}
		if body := request(h, "/doctor?format=json").Body.String(); !strings.Contains(body, `"state": "ok"`) || !strings.Contains(body, `"name": "version"`) {
			t.Errorf("JSON: %s", body)
		}
	})
}

// Close ends an examination.
func TestDoctorEndsWithClose(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, h *Handler, d *fakeDatabase) {
		from, done := time.Now(), make(chan struct{})
		go func() {
			defer close(done)
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/doctor", nil))
		}()
		synctest.Wait() // for the examination to begin
		_ = h.Close()
		<-done
		if time.Since(from) != 0 || !h.doctor.failed {
			t.Errorf("Close took %v, failed %t", time.Since(from), h.doctor.failed)
		}
	})
}
