package election_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// role is the role of a process that campaigns. It prints what it sees, one
// report on a line.
const role = "candidate"

// orders are what a candidate is started with.
type orders struct {
	Who         int
	Driver, DSN string
}

// A report is a look at a Status that said Leader, or the end of a term. It was
// so at some moment between From and To, in nanoseconds of the machine's clock.
type report struct {
	Who, Term int
	Token     string
	From, To  int64

	Cause string // of the end of the leader's context; empty: a look
}

// stand is the program of a candidate. It returns when ctx ends.
func stand(ctx context.Context, o orders) error {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the test causes losses
	locks, err := sql.Open(o.Driver, o.DSN)
	if err != nil {
		return err
	}
	// A leader that is frozen in a transaction must not keep the next from the
	// row.
	work, err := sql.Open(o.Driver, o.DSN+"&idle_in_transaction_session_timeout=500")
	if err != nil {
		return err
	}
	s, err := sqllock.Open(context.Background(), locks, sqllock.WithLease(2*time.Second))
	if err != nil {
		return err
	}
	var mu sync.Mutex // protects the output
	print := func(r report) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(os.Stdout).Encode(r)
	}
	c := election.New(s, office, election.WithBackoff(100*time.Millisecond, time.Second))
	go func() { // as a health check would
		for ctx.Err() == nil {
			from := time.Now().UnixNano()
			if s := c.Status(); s.Leader {
				print(report{Who: o.Who, Term: s.Terms, Token: s.Token, From: from, To: time.Now().UnixNano()})
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_ = c.Run(ctx, func(ctx context.Context) error {
		s := c.Status()
		context.AfterFunc(ctx, func() { print(report{Who: o.Who, Term: s.Terms, Cause: context.Cause(ctx).Error()}) })
		for ctx.Err() == nil { // a driver may be stuck here
			_ = o.writeFenced(ctx, work, s.Token)
		}
		return ctx.Err()
	})
	return s.Close()
}

func (o orders) writeFenced(ctx context.Context, db *sql.DB, token string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	lock, _ := sqllock.FromContext(ctx)
	if err := sqllock.Fence(ctx, tx, lock); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO work (who, token) VALUES ($1, $2)", o.Who, token); err != nil {
		return err
	}
	return tx.Commit()
}

// A candidate is a process that campaigns, as the test sees it.
type candidate struct {
	*subprocess.Process

	who  int
	read chan struct{} // closed when the process has ended and its reports are in the history
}

// startCandidate starts a candidate, which ends with the test.
func startCandidate(t *testing.T, h *history, o orders) *candidate {
	t.Helper()
	p, err := subprocess.Start(role, o)
	if err != nil {
		t.Fatal(err)
	}
	c := &candidate{Process: p, who: o.Who, read: make(chan struct{})}
	go func() {
		defer close(c.read)
		lines := json.NewDecoder(p.Stdout)
		for r := (report{}); lines.Decode(&r) == nil; r = (report{}) {
			h.add(r)
		}
		<-p.Ended()
	}()
	t.Cleanup(func() {
		_ = p.Kill()
		<-c.read
	})
	return c
}

// A history keeps the reports of all candidates.
type history struct {
	mu     sync.Mutex // protects the others
	terms  map[termID]*span
	causes map[int][]string // by process: how its terms ended
}

// A termID names a term of one process.
type termID struct{ who, term int }

// A span is the time for which a process led for certain, in one term: from the
// end of the first look to the beginning of the last. A lost key does not come
// back within a term, so the process led all the time between.
type span struct {
	termID

	token       string
	first, last int64
}

func (h *history) add(r report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Cause != "" {
		h.causes[r.Who] = append(h.causes[r.Who], r.Cause)
		return
	}
	id := termID{r.Who, r.Term}
	if h.terms[id] == nil {
		h.terms[id] = &span{termID: id, token: r.Token, first: r.To, last: r.From}
	}
	s := h.terms[id]
	s.first, s.last = min(s.first, r.To), max(s.last, r.From)
}

// since returns a term that went on for certain after a moment. It ignores the
// process not. ok is false if there is none.
func (h *history) since(moment time.Time, not int) (s span, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, term := range h.terms {
		if id.who != not && term.first <= term.last && term.last > moment.UnixNano() {
			return *term, true
		}
	}
	return span{}, false
}

// ends returns the causes with which the terms of a process have ended.
func (h *history) ends(who int) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.causes[who]...)
}

// spans returns the time for which each leader led for certain.
func (h *history) spans() (all []span) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.terms {
		if s.first <= s.last {
			all = append(all, *s)
		}
	}
	return all
}
