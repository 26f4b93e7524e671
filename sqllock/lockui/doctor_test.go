package lockui

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An examination begins with a POST only. While it is under way, and for a while
// after it, no other begins, however many viewers ask.
func TestDoctor(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, h *Handler, d *fakeDatabase) {
		examine := func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/doctor", nil))
			synctest.Wait() // for the examination to begin
			if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "doctor" {
				t.Errorf("status %d, Location %q", w.Code, w.Header().Get("Location"))
			}
		}
		for i, step := range []struct {
			after   time.Duration
			post    bool
			checks  int
			present string
		}{
			{0, false, 0, "Nothing has been examined yet."},
			{0, true, 1, "An examination is under way."},
			{time.Second, true, 1, "An examination is under way."},
			{3 * time.Second, false, 1, "fine &amp; well"},
			{0, true, 1, "fine &amp; well"},
			{examinationPause, true, 2, "An examination is under way."},
			{time.Minute, false, 2, "fine &amp; well"},
		} {
			time.Sleep(step.after)
			if step.post {
				examine()
			}
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
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/doctor", nil))
		from := time.Now()
		if _ = h.Close(); time.Since(from) != 0 || !h.doctor.failed {
			t.Errorf("Close took %v, failed %t", time.Since(from), h.doctor.failed)
		}
	})
}
