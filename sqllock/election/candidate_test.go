package election_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// candidateEnv makes this test binary a candidate: a process that campaigns,
// and tells on its output what it sees, a report on a line.
const candidateEnv = "LATCHKEY_TEST_CANDIDATE"

// candidacy is a candidate's orders.
type candidacy struct {
	Who    int
	Driver string
	DSN    string
}

// A report is what a candidate tells: a claim, or how a term ended.
type report struct {
	claim

	Ended int    // the term that ended; 0 if this is a claim
	Cause string // of the end of its leader's context
}

// runCandidate does not return in a process that is to be a candidate.
func runCandidate() {
	text := os.Getenv(candidateEnv)
	if text == "" {
		return
	}
	var orders candidacy
	err := json.Unmarshal([]byte(text), &orders)
	if err == nil {
		err = orders.carryOut()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "candidate:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (o candidacy) carryOut() error {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // losses are what the test is about
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
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // the order to exit, or the parent's end
		cancel()
	}()
	c := election.New(s, office, election.WithBackoff(100*time.Millisecond, time.Second))
	out := &reports{encoder: json.NewEncoder(os.Stdout)}
	go watchStatus(ctx, o.Who, c, out.claim)
	_ = c.Run(ctx, func(ctx context.Context) error {
		s := c.Status()
		o.write(ctx, work, s.Token)
		out.tell(report{Ended: s.Terms, Cause: context.Cause(ctx).Error()})
		return ctx.Err()
	})
	return s.Close()
}

// write writes rows as fast as it may, fenced, until ctx ends.
func (o candidacy) write(ctx context.Context, db *sql.DB, token string) {
	for ctx.Err() == nil {
		_ = o.writeFenced(ctx, db, token)
	}
}

func (o candidacy) writeFenced(ctx context.Context, db *sql.DB, token string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	lock, _ := sqllock.FromContext(ctx)
	if err := sqllock.Fence(ctx, tx, lock); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO deeds (who, token) VALUES ($1, $2)", o.Who, token); err != nil {
		return err
	}
	return tx.Commit()
}

// watchStatus is the health check: it looks again and again whether c leads.
func watchStatus(ctx context.Context, who int, c *election.Campaign, found func(claim)) {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for ctx.Err() == nil {
		from := time.Now().UnixNano()
		s := c.Status()
		if to := time.Now().UnixNano(); s.Leader {
			found(claim{who, s.Terms, s.Token, from, to})
		}
		<-ticker.C
	}
}

// reports is a candidate's output.
type reports struct {
	mu      sync.Mutex // protects encoder
	encoder *json.Encoder
}

func (r *reports) tell(what report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.encoder.Encode(what)
}

func (r *reports) claim(c claim) { r.tell(report{claim: c}) }

// A candidate is such a process, seen from the test.
type candidate struct {
	who   int
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{} // closed when the process has ended and all it said is in the book

	mu     sync.Mutex // protects causes
	causes []string   // of its terms' ends
}

// startCandidate starts a candidate, which ends with the test.
func startCandidate(t *testing.T, b *book, o candidacy) *candidate {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	c := &candidate{who: o.Who, cmd: exec.Command(os.Args[0]), ended: make(chan struct{})} //nolint:gosec,noctx // this test binary
	c.cmd.Env = append(os.Environ(), candidateEnv+"="+string(text))
	c.cmd.Stderr = os.Stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		c.listen(stdout, b)
		_ = c.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.ended
	})
	return c
}

func (c *candidate) listen(out io.Reader, b *book) {
	lines := json.NewDecoder(out)
	for {
		var r report
		if lines.Decode(&r) != nil {
			return
		}
		if r.Ended == 0 {
			b.add(r.claim)
			continue
		}
		c.mu.Lock()
		c.causes = append(c.causes, r.Cause)
		c.mu.Unlock()
	}
}

// ends is the causes with which its terms have ended.
func (c *candidate) ends() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.causes...)
}
