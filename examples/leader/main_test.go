package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/examples/internal/fleet"
	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	fleet.Main(main)
	dbtest.Main(m)
}

// A term is the time for which an instance certainly led: from the end of its
// first work to the beginning of its last.
type term struct {
	work  fleet.Work
	token string
}

// A history is the terms of a fleet, in the order of their beginnings.
type history struct {
	*fleet.Fleet

	mu    sync.Mutex // protects terms
	terms []term
}

func newHistory(t *testing.T, url string) *history {
	h := &history{Fleet: fleet.Test(t, "DATABASE_URL="+url)}
	h.Line = func(i *fleet.Instance, line string) {
		var w struct {
			Msg, Token  string
			Asked, Time time.Time
		}
		if json.Unmarshal([]byte(line), &w) != nil || w.Msg != "worked" {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for n := range h.terms {
			if h.terms[n].token == w.Token {
				h.terms[n].work.To = w.Asked
				return
			}
		}
		h.terms = append(h.terms, term{fleet.Work{Key: "mailer", Instance: i.Number, From: w.Time, To: w.Time}, w.Token})
	}
	return h
}

func (h *history) join(t *testing.T) *fleet.Instance {
	t.Helper()
	return h.MustStart(t, "-http", "127.0.0.1:0", "-every", "2ms", "-lease", "2s")
}

// next waits until an instance works in term number n, and returns it.
func (h *history) next(t *testing.T, n int) (leader *fleet.Instance) {
	t.Helper()
	lockertest.Eventually(t, "an instance leads", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, i := range h.Running() {
			if len(h.terms) > n && h.terms[n].work.Instance == i.Number {
				leader = i
			}
		}
		return leader != nil
	})
	return leader
}

// leads reports whether an instance says that it leads, or false if it is silent.
func leads(i *fleet.Instance) bool {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	response, err := client.Get("http://" + i.Address("http") + "/health")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	var status struct{ Leader bool }
	return json.NewDecoder(response.Body).Decode(&status) == nil && status.Leader
}

// end stops the fleet and prints the terms. No two overlap, and each has a greater
// token than the one before.
func (h *history) end(t *testing.T) {
	t.Helper()
	if err := h.Stop(); err != nil {
		t.Error(err)
	}
	rows := [][]string{{"LEADER", "FROM", "FOR", "TOKEN"}}
	var works []fleet.Work
	for n, term := range h.terms {
		works = append(works, term.work)
		if n > 0 && term.token <= h.terms[n-1].token {
			t.Errorf("the token %q does not come after %q", term.token, h.terms[n-1].token)
		}
		from := term.work.From.Sub(h.terms[0].work.From)
		rows = append(rows, []string{fmt.Sprint("instance ", term.work.Instance), from.String(), term.work.To.Sub(term.work.From).String(), term.token})
	}
	fleet.Table(t.Output(), rows...)
	if n := fleet.Overlaps(works); n > 0 {
		t.Errorf("two instances led at once, %d times", n)
	}
}

// When the leader stops, another instance leads.
func TestNextLeader(t *testing.T) {
	h := newHistory(t, pgtest.Database(t))
	first := h.join(t)
	h.next(t, 0)
	second := h.join(t)
	if err := first.Stop(); err != nil {
		t.Error(err)
	}
	if leader := h.next(t, 1); leader != second || !leads(second) {
		t.Errorf("instance %d leads, and says so: %v; want the second", leader.Number, leads(second))
	}
	h.end(t)
}

// Leaders stop, are killed and freeze. One that wakes up does not call itself
// leader.
func TestLongLeaders(t *testing.T) {
	h := newHistory(t, pgtest.Database(t))
	for range 3 {
		h.join(t)
	}
	frozen := 0
	for n, end := range []func(*fleet.Instance) error{
		(*fleet.Instance).Stop, (*fleet.Instance).Kill, (*fleet.Instance).Freeze,
		(*fleet.Instance).Freeze, (*fleet.Instance).Kill, (*fleet.Instance).Stop,
	} {
		leader := h.next(t, n)
		if err := end(leader); err != nil {
			t.Fatal(err)
		}
		next := h.next(t, n+1)
		lockertest.Eventually(t, "the next leader says so", func() bool { return leads(next) })
		if leader.Thaw() == nil {
			frozen++
			if leads(leader) {
				t.Error("an instance that wakes up after its lease calls itself leader")
			}
			continue
		}
		h.join(t)
	}
	if frozen != 2 {
		t.Errorf("%d leaders woke up, want 2", frozen)
	}
	h.end(t)
}

// A DATABASE_URL that is not understood is an error that does not show it.
func TestUnknownDatabase(t *testing.T) {
	out, err := fleet.Test(t, "DATABASE_URL=postgres://ann:secret@%zz").Run("-http", "127.0.0.1:0")
	if err == nil || strings.Contains(out, "secret") {
		t.Errorf("it ends with %v\n%s", err, out)
	}
}
