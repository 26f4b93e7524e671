package lockui

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A fakeDatabase answers looks, and counts them.
type fakeDatabase struct {
	mu     sync.Mutex
	begun  []time.Time
	checks int // examinations
	answer func(ctx context.Context) (*lockwatch.Snapshot, error)
}

func (d *fakeDatabase) look(ctx context.Context) (*lockwatch.Snapshot, error) {
	d.mu.Lock()
	d.begun = append(d.begun, time.Now())
	answer := d.answer
	d.mu.Unlock()
	return answer(ctx)
}

func (d *fakeDatabase) set(answer func(ctx context.Context) (*lockwatch.Snapshot, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = answer
}

func (d *fakeDatabase) looks() []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.begun)
}

// answers returns a snapshot with n locks.
func answers(n int) func(ctx context.Context) (*lockwatch.Snapshot, error) {
	return func(context.Context) (*lockwatch.Snapshot, error) {
		s := &lockwatch.Snapshot{At: time.Now(), Dialect: sqllock.PostgreSQL, Heartbeats: lockwatch.TableRead, Waits: lockwatch.TableRead}
		for i := range n {
			s.Holders = append(s.Holders, lockwatch.Holder{Key: sqllock.ID(int64(i)), Process: lockwatch.Process{PID: 100 + i}})
		}
		return s, nil
	}
}

// stuck never answers, as a driver behind a cut cable.
func stuck(ctx context.Context) (*lockwatch.Snapshot, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// inBubble runs test in a bubble with a fake clock, with a page on a fake database.
func inBubble(t *testing.T, test func(t *testing.T, h *Handler, d *fakeDatabase)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDatabase{answer: answers(3)}
		h := newHandler(nil, options{authorize: func(*http.Request) bool { return true }, log: slog.New(slog.DiscardHandler)}, d.look, d.check)
		defer h.Close()
		test(t, h, d)
	})
}

func request(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

func (d *fakeDatabase) check(ctx context.Context) (*lockdoctor.Report, error) {
	d.mu.Lock()
	d.checks++
	d.mu.Unlock()
	select {
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &lockdoctor.Report{At: time.Now(), Checks: []lockdoctor.Result{{Name: "version", State: lockdoctor.OK, Reason: "fine & well"}}}, nil
}

// However many viewers there are, one look begins a second. It ends with the last
// viewer.
func TestOneLookASecond(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, h *Handler, d *fakeDatabase) {
		time.Sleep(time.Minute)
		if n := len(d.looks()); n != 0 {
			t.Errorf("%d looks without a viewer", n)
		}
		for range 600 {
			for range 20 {
				request(h, "/locks?part=changing")
			}
			time.Sleep(100 * time.Millisecond)
		}
		seconds := d.looks()
		if n := len(seconds); n != 60 {
			t.Errorf("%d looks in a minute, want one a second", n)
		}
		for i := 1; i < len(seconds); i++ {
			if pause := seconds[i].Sub(seconds[i-1]); pause < tick {
				t.Errorf("look %d began %v after the one before", i, pause)
			}
		}
		time.Sleep(time.Minute)
		if n := len(d.looks()); n != len(seconds) {
			t.Errorf("%d looks without a viewer", n-len(seconds))
		}
		d.set(answers(4))
		wants(t, h, "/locks", []string{"4 held"}, nil) // the next viewer gets no old state
	})
}

// While the database is away the page shows the last state, with its age and the
// reason, and no response takes a second. The database gets one question at a time.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	refused := func(context.Context) (*lockwatch.Snapshot, error) {
		return nil, fmt.Errorf("%w: dial tcp 10.1.2.3:5432: refused", sqllock.ErrUnavailable)
	}
	for name, away := range map[string]func(context.Context) (*lockwatch.Snapshot, error){"refused": refused, "stuck": stuck} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *Handler, d *fakeDatabase) {
				request(h, "/locks")
				d.set(away)
				for range 10 {
					time.Sleep(time.Second)
					from := time.Now()
					w := request(h, "/locks")
					if took := time.Since(from); took >= time.Second {
						t.Errorf("a response took %v", took)
					}
					if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "3 held") {
						t.Fatalf("status %d: %s", w.Code, w.Body)
					}
				}
				body := request(h, "/locks").Body.String()
				for _, want := range []string{"Database: away.", "1"} {
					if !strings.Contains(body, want) {
						t.Errorf("no %q in %s", want, body)
					}
				}
				if strings.Contains(body, "10.1.2.3") {
					t.Errorf("a host is on the page: %s", body)
				}
				d.set(answers(4))
				time.Sleep(lookTimeout + 2*tick)
				if body := request(h, "/locks").Body.String(); !strings.Contains(body, "4 held") || !strings.Contains(body, "Database: ok.") {
					t.Errorf("the database is back, and the page is %s", body)
				}
			})
		})
	}
}

// If the service has taken all connections of the pool, the page says so: it does
// not look as if the database were away.
func TestFullPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := dbtest.Hollow(func(context.Context) error { return nil })
		defer db.Close()
		db.SetMaxOpenConns(1)
		taken, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h := newHandler(db, options{authorize: func(*http.Request) bool { return true }, log: slog.New(slog.DiscardHandler)}, newLook(db, options{}), nil)
		defer h.Close()
		const full = "all connections of this page&#39;s pool are in use"
		request(h, "/locks")
		time.Sleep(lookTimeout + tick)
		wants(t, h, "/locks", []string{full}, nil)
		if err := taken.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookTimeout + 2*tick)
		wants(t, h, "/locks", []string{"Database: away."}, []string{full}) // the connection carries out nothing
	})
}

// Each error of a look has a sentence of its own, which is not that of the error.
func TestReason(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err   error
		state string
		part  string
	}{
		{errors.ErrUnsupported, "unsupported", "does not show its locks"},
		{sqllock.ErrUnavailable, "away", "does not answer"},
		{context.DeadlineExceeded, "away", "does not answer"},
		{sqllock.ErrNotExclusive, "away", "standby"},
		{sqllock.ErrConfig, "away", "password"},
		{sqllock.ErrCapacity, "away", "no room"},
		{sqllock.ErrClosed, "away", "closed"},
		{errors.New("password of host secret"), "away", "rejects"},
	} {
		state, text := reason(fmt.Errorf("%w at host secret", tt.err))
		if state != tt.state || !strings.Contains(text, tt.part) || strings.Contains(text, "secret") {
			t.Errorf("%v: %s, %q", tt.err, state, text)
		}
	}
}

// Close ends a look that is stuck. After it requests get 503, and begin no look.
func TestClose(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, h *Handler, d *fakeDatabase) {
		d.set(stuck)
		request(h, "/locks")
		from := time.Now()
		_ = h.Close()
		_ = h.Close()
		if took := time.Since(from); took != 0 {
			t.Errorf("Close took %v", took)
		}
		if w := request(h, "/"); w.Code != http.StatusServiceUnavailable || len(d.looks()) != 1 {
			t.Errorf("status %d and %d looks after Close", w.Code, len(d.looks()))
		}
	})
}

// With 10,000 locks and as many waiters each view stays small, and the rest is
// counted. One look serves all pages.
func TestManyLocks(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, h *Handler, d *fakeDatabase) {
		d.set(func(ctx context.Context) (*lockwatch.Snapshot, error) {
			s, err := answers(10_000)(ctx)
			for i := range 10_000 {
				s.Waiters = append(s.Waiters, lockwatch.Waiter{Key: sqllock.ID(7), Process: lockwatch.Process{PID: 20_000 + i}, BlockedBy: []int{107}})
			}
			return s, err
		})
		for path, parts := range map[string][]string{
			"/":                {"10000"},
			"/locks":           {"10000 held", "Page 1 of 100", "locks?page=2", `class="key">7</span>`},
			"/locks?page=100":  {"Page 100 of 100", "locks?page=99"},
			"/locks?page=9999": {"Page 100 of 100"},
			"/locks?page=-1":   {"Page 1 of 100"},
			"/waits":           {"And 9800 more."},
		} {
			w := request(h, path)
			for _, part := range parts {
				if !strings.Contains(w.Body.String(), part) {
					t.Errorf("%s: no %q", path, part)
				}
			}
			if n := w.Body.Len(); n > 120_000 {
				t.Errorf("%s has %d bytes", path, n)
			}
		}
		if n := len(d.looks()); n != 1 {
			t.Errorf("%d looks", n)
		}
	})
}
