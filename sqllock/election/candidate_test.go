package election_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
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
	Who    int
	Driver string
	DSN    string
}

// A report is a line of a candidate: an observation, or how a term ended.
type report struct {
	observation

	Ended int    // the term that ended; 0 if this is an observation
	Cause string // of the end of its leader's context
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
	c := election.New(s, office, election.WithBackoff(100*time.Millisecond, time.Second))
	out := &printer{encoder: json.NewEncoder(os.Stdout)}
	go watchStatus(ctx, o.Who, c, func(seen observation) { out.print(report{observation: seen}) })
	_ = c.Run(ctx, func(ctx context.Context) error {
		s := c.Status()
		o.write(ctx, work, s.Token)
		out.print(report{Ended: s.Terms, Cause: context.Cause(ctx).Error()})
		return ctx.Err()
	})
	return s.Close()
}

// write writes fenced rows without a pause until ctx ends.
func (o orders) write(ctx context.Context, db *sql.DB, token string) {
	for ctx.Err() == nil {
		_ = o.writeFenced(ctx, db, token)
	}
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

// watchStatus reads the Status of c every millisecond until ctx ends, as a
// health check would. It passes on each time at which c leads.
func watchStatus(ctx context.Context, who int, c *election.Campaign, found func(observation)) {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for ctx.Err() == nil {
		from := time.Now().UnixNano()
		s := c.Status()
		if to := time.Now().UnixNano(); s.Leader {
			found(observation{who, s.Terms, s.Token, from, to})
		}
		<-ticker.C
	}
}

// A printer is the output of a candidate.
type printer struct {
	mu      sync.Mutex // protects encoder
	encoder *json.Encoder
}

func (p *printer) print(what report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.encoder.Encode(what)
}

// A candidate is a process that campaigns, as the test sees it.
type candidate struct {
	*subprocess.Process

	who  int
	read chan struct{} // closed when the process has ended and its observations are in the history

	mu     sync.Mutex // protects causes
	causes []string   // of the ends of its terms
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
		c.listen(p.Stdout, h)
		<-p.Ended()
	}()
	t.Cleanup(func() {
		_ = p.Kill()
		<-c.read
	})
	return c
}

// listen reads the reports until the process has ended.
func (c *candidate) listen(out io.Reader, h *history) {
	lines := json.NewDecoder(out)
	for {
		var r report
		if lines.Decode(&r) != nil {
			return
		}
		if r.Ended == 0 {
			h.add(r.observation)
			continue
		}
		c.mu.Lock()
		c.causes = append(c.causes, r.Cause)
		c.mu.Unlock()
	}
}

// ends returns the causes with which its terms have ended.
func (c *candidate) ends() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.causes...)
}
