package pages

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The tests that docs/testing.md shows, word by word.

// exportHandler is the service's own code: one export at a time for each user.
func exportHandler(locks sqllock.Locker, export http.HandlerFunc) http.Handler {
	limit := ratelimit.OneAtATime(locks, "export")
	return httpmw.New(limit, httpmw.Query("user")).Handler(export)
}

func TestSecondExportIsRejected(t *testing.T) {
	locks := sqllock.NewMemory()
	held, err := locks.TryLock(t.Context(), sqllock.Namespace("export").Key("ada"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Unlock()

	h := exportHandler(locks, func(http.ResponseWriter, *http.Request) { t.Error("it ran") })
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/export?user=ada", nil))
	if w.Code != http.StatusTooManyRequests {
		t.Errorf("status %d", w.Code)
	}
}

func TestExportStopsWhenItsLockIsLost(t *testing.T) {
	locks := sqllock.NewMemory()
	h := exportHandler(locks, func(w http.ResponseWriter, r *http.Request) {
		locks.Lose() // as if the database had gone away
		<-r.Context().Done()
		if !errors.Is(context.Cause(r.Context()), sqllock.ErrLost) {
			t.Error("the context has another cause")
		}
	})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/export?user=ada", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", w.Code)
	}
}

func TestWaitHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := sqllock.NewMemory()
		limit := ratelimit.OneAtATime(locks, "export", ratelimit.WithWait(time.Minute, 10))
		held, err := limit.Acquire(t.Context(), "ada")
		if err != nil {
			t.Fatal(err)
		}
		defer held.Unlock()

		start := time.Now()
		_, err = limit.Acquire(t.Context(), "ada") // takes no time: the clock is virtual
		if !errors.Is(err, ratelimit.ErrBusy) || time.Since(start) != time.Minute {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

// away is a Locker whose database does not answer.
type away struct{}

func (away) TryLock(context.Context, sqllock.Key) (*sqllock.Lock, error) {
	return nil, sqllock.ErrUnavailable
}

func (away) Lock(ctx context.Context, _ sqllock.Key) (*sqllock.Lock, error) {
	<-ctx.Done()
	return nil, errors.Join(ctx.Err(), sqllock.ErrUnavailable)
}

func TestExportWithoutADatabase(t *testing.T) {
	h := exportHandler(away{}, func(http.ResponseWriter, *http.Request) { t.Error("it ran") })
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/export?user=ada", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("status %d", w.Code)
	}
}

// Each declaration that the page shows is in this file, but for those that need
// a reader's own database.
func TestTestingPage(t *testing.T) {
	t.Parallel()
	const ownDatabase = "TEST_DATABASE_URL"
	text, err := os.ReadFile("testing_page_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, b := range parse(string(page)).blocks {
		if strings.Contains(b.code, ownDatabase) || strings.Contains(b.code, "eachDriver") {
			continue
		}
		shown++
		if !strings.Contains(string(text), b.code+"\n") {
			t.Errorf("docs/testing.md:%d: this code is not run", b.line)
		}
	}
	if shown < 4 {
		t.Errorf("the page shows %d tests that run", shown)
	}
}
