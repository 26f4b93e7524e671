package lockui

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// wants checks what the view at target says, and does not say.
func wants(t *testing.T, h *Handler, target string, parts, absent []string) {
	t.Helper()
	says(t, target, request(h, target).Body.String(), parts, absent)
}

// says checks what a text says, and does not say.
func says(t *testing.T, name, body string, parts, absent []string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(body, part) {
			t.Errorf("%s: no %q in %s", name, part, body)
		}
	}
	for _, part := range absent {
		if strings.Contains(body, part) {
			t.Errorf("%s: %q is in %s", name, part, body)
		}
	}
}

// What was seen before the page was left alone is never called ok: the database may
// be away since.
func TestOldStateIsNotOK(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, h *Handler, d *fakeDatabase) {
		wants(t, h, "/locks", []string{"Database: ok.", "<p>3 held."}, nil)
		time.Sleep(time.Minute)
		d.set(stuck)
		for _, path := range []string{"/", "/locks", "/waits", "/findings", "/doctor"} {
			wants(t, h, path, []string{"Database: not known yet.", "asks the database again", "they may be gone"}, []string{"Database: ok."})
		}
		wants(t, h, "/locks", []string{"As last seen: 3 held."}, nil)
		wants(t, h, "/", []string{"The database, as last seen"}, nil)
		time.Sleep(3 * tick)
		wants(t, h, "/locks", []string{"Database: away.", "they may be gone"}, []string{"Database: ok."})
		d.set(answers(2))
		time.Sleep(lookTimeout + 2*tick)
		wants(t, h, "/locks", []string{"Database: ok.", "<p>2 held."}, []string{"gone", "last seen"})
	})
}

// An error of an hour ago does not say that the database is away now.
func TestOldErrorIsNotAway(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, h *Handler, d *fakeDatabase) {
		d.set(func(context.Context) (*lockwatch.Snapshot, error) { return nil, sqllock.ErrUnavailable })
		wants(t, h, "/locks", []string{"Database: away."}, nil)
		time.Sleep(time.Hour)
		d.set(stuck)
		wants(t, h, "/locks", []string{"Database: not known yet."}, []string{"Database: away."})
	})
}

// Before the first answer nothing is known, and no figure is 0. No request waits
// long for a database that is away, which gets one question at a time.
func TestNothingIsKnownYet(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, h *Handler, d *fakeDatabase) {
		d.set(stuck)
		from := time.Now()
		wants(t, h, "/", []string{"Nothing is known of it yet."}, []string{"Locks held"})
		wants(t, h, "/?format=json", nil, []string{"totals"})
		wants(t, h, "/locks", []string{"Which locks are held is not known yet.", "Not known yet."}, []string{"No lock is held.", "0 held"})
		wants(t, h, "/waits", []string{"No wait is seen."}, []string{"Nothing waits"})
		if took := time.Since(from); took > 4*viewTimeout {
			t.Errorf("four requests took %v", took)
		}
		time.Sleep(time.Minute)
		if n := len(d.looks()); n > 12 {
			t.Errorf("%d looks at a database that does not answer", n)
		}
	})
}

// Without the registry the waits of Sessions are not known, and no view denies them.
func TestWaitsAreNotKnown(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, h *Handler, d *fakeDatabase) {
		show := func(waiting int, state lockwatch.TableState) {
			d.set(func(ctx context.Context) (*lockwatch.Snapshot, error) {
				s, err := answers(1)(ctx)
				s.Heartbeats, s.Waits = state, state
				s.Waiters = make([]lockwatch.Waiter, waiting)
				return s, err
			})
			time.Sleep(3 * tick)
		}
		show(0, lockwatch.TableMissing)
		wants(t, h, "/", []string{"<dt>Waiting</dt><dd>not known</dd>", "<dt>Cycles of waits</dt><dd>not known</dd>", "lockwatch.Schema", "WithRegistry"}, nil)
		wants(t, h, "/waits", []string{"None is seen.", "No wait is seen. Callers may wait in Sessions."},
			[]string{"Nothing waits", "There is none."})
		wants(t, h, "/findings", []string{"are not known."}, nil)
		wants(t, h, "/waits?format=json", []string{`"waits_known": false`}, nil)
		show(2, lockwatch.TableMissing) // in the server's own queue
		wants(t, h, "/", []string{"<dd>2 or more</dd>"}, nil)
		show(0, lockwatch.TableRead)
		wants(t, h, "/", []string{"<dt>Waiting</dt><dd>0</dd>"}, []string{"not known"})
		wants(t, h, "/waits", []string{"Nothing waits.", "There is none."}, nil)
		show(0, "") // MariaDB and SQLite have no registry
		wants(t, h, "/waits", []string{"this kind of database has no registry", "None is seen."}, []string{"Nothing waits"})
	})
}

// What the overview says of a Session: of a lock table that is so full that it
// denies new keys, and of a connection that it has closed while idle. Such a
// Session is not away, and its lease is not low.
func TestSessionTexts(t *testing.T) {
	t.Parallel()
	const full, idle = "deny new keys", "<dt>Connections</dt><dd>0 (closed while idle)</dd>"
	for _, tt := range []struct {
		name   string
		stats  sqllock.Stats
		says   string
		silent []string
	}{
		{"no lock table", sqllock.Stats{}, "<h3>main</h3>", []string{full}},
		{"nearly full", sqllock.Stats{TableUsed: 599, TableSize: 1000}, "<h3>main</h3>", []string{full}},
		{"full", sqllock.Stats{TableUsed: 600, TableSize: 1000}, full, nil},
		{"idle", sqllock.Stats{IdleClosed: true}, idle, []string{"(away)", "(low)"}},
	} {
		v := sessionOf("main", sqllock.PostgreSQL, tt.stats)
		var b strings.Builder
		if err := templates[""].ExecuteTemplate(&b, "live", page{Body: overviewView{Sessions: []sessionView{v}}}); err != nil {
			t.Fatal(err)
		}
		says(t, tt.name, b.String(), []string{tt.says}, tt.silent)
	}
}

// Only a viewer who may end sessions has the links.
func TestLinksOfThoseWhoMayEnd(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, h *Handler, d *fakeDatabase) {
		d.set(func(ctx context.Context) (*lockwatch.Snapshot, error) {
			s, err := answers(1)(ctx)
			s.Holders[0].Process.Start = s.At
			return s, err
		})
		h.options.terminate = func(r *http.Request) bool { return r.URL.Query().Get("operator") == "yes" }
		wants(t, h, "/locks?operator=yes", []string{"End session"}, nil)
		wants(t, h, "/locks", []string{"Held locks"}, []string{"End session", "Action"})
	})
}

// Every kind of finding that a page can have has a text.
func TestMeanings(t *testing.T) {
	t.Parallel()
	for _, kind := range []lockwatch.FindingKind{lockwatch.LateHeartbeat, lockwatch.RegistryNotWritten, lockwatch.WaitCycle, lockwatch.HeldLong} {
		if meanings[kind] == "" {
			t.Errorf("%q has no text", kind)
		}
	}
}

// With WithLongHeld a lock that is held for long is a finding, which says what it is.
func TestHeldForLong(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, h *Handler, _ *fakeDatabase) {
		WithLongHeld(5 * time.Second)(&h.options)
		h.poller.diagnosis = h.options.diagnosis()
		for range 5 {
			wants(t, h, "/findings", []string{"Nothing is found."}, nil)
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Second)
		wants(t, h, "/findings", []string{"held for long", "lockui.WithLongHeld"}, nil)
	})
}

// The changing part of a view is that within the page, and no more.
func TestChangingPart(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, h *Handler, d *fakeDatabase) {
		for _, path := range []string{"/", "/locks", "/waits", "/findings", "/doctor"} {
			part := request(h, path+"?part=changing").Body.String()
			says(t, path, part, []string{"Database: ok.", "data-summary"}, []string{"<html", "<nav", "<form", "<script"})
			wants(t, h, path, []string{"<html", part}, nil)
		}
	})
}

func TestTexts(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		spanText(0): "0.0 s", spanText(9.96): "10.0 s", spanText(59.9): "59 s", spanText(61): "1 min 1 s", spanText(3700): "1 h 1 min", spanText(90_000): "1 d 1 h",
		durationText(0): "–", durationText(0.0004): "0.40 ms", durationText(0.25): "250 ms", durationText(12): "12.0 s",
		countText(3): "3", countText(2.26): "2.3",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
