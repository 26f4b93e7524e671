package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
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

// A history is the terms of a fleet.
type history struct {
	mu    sync.Mutex            // protects what follows
	works map[int]int           // how often each instance has worked
	terms map[string]fleet.Work // by token: from the end of the first work to the beginning of the last
}

// add adds a line that an instance has printed.
func (h *history) add(i *fleet.Instance, line string) {
	var w struct {
		Msg, Token  string
		Asked, Time time.Time
	}
	if json.Unmarshal([]byte(line), &w) != nil || w.Msg != "worked" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.works[i.Number]++
	term, ok := h.terms[w.Token]
	if !ok {
		term = fleet.Work{Key: "mailer", Instance: i.Number, From: w.Time}
	}
	term.To = w.Asked
	h.terms[w.Token] = term
}

// by returns how often an instance has worked.
func (h *history) by(i *fleet.Instance) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.works[i.Number]
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

// The first instance leads. It freezes, and the second one leads after the lease.
// The first one wakes up and does not call itself leader. It leads again when the
// second one stops. Terms do not overlap, and each has a greater token.
func TestNextLeader(t *testing.T) {
	h := history{works: map[int]int{}, terms: map[string]fleet.Work{}}
	f := fleet.Test(t, "DATABASE_URL="+pgtest.Database(t))
	f.Line = h.add
	join := func() *fleet.Instance {
		return f.MustStart(t, "-http", "127.0.0.1:0", "-every", "2ms", "-lease", "2s")
	}
	works := func(i *fleet.Instance) {
		t.Helper()
		before := h.by(i)
		lockertest.Eventually(t, "it leads and says so", func() bool { return h.by(i) > before && leads(i) })
	}
	first := join()
	works(first)
	second := join()
	if err := first.Freeze(); err != nil {
		t.Fatal(err)
	}
	works(second)
	if err := first.Thaw(); err != nil {
		t.Fatal(err)
	}
	if leads(first) && leads(second) { // a second one that has lost its own lease leads no more
		t.Error("an instance that wakes up after its lease calls itself leader")
	}
	if err := second.Stop(); err != nil {
		t.Error(err)
	}
	works(first)
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
	var terms []fleet.Work
	for _, token := range slices.Sorted(maps.Keys(h.terms)) {
		terms = append(terms, h.terms[token])
	}
	rising := slices.IsSortedFunc(terms, func(a, b fleet.Work) int { return a.From.Compare(b.From) })
	if n := fleet.Overlaps(terms); n > 0 || !rising || len(terms) < 3 {
		t.Errorf("of %d terms %d overlap; each has a greater token than the one before: %v", len(terms), n, rising)
	}
}

// A DATABASE_URL that is not understood is an error that does not show it.
func TestUnknownDatabase(t *testing.T) {
	fleet.Test(t).HidesURL(t, []string{"postgres://ann:secret@%zz"}, "-http", "127.0.0.1:0")
}
