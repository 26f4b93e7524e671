package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/examples/internal/fleet"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A provider delivers webhooks to a fleet, at least once.
type provider struct {
	*fleet.Fleet

	db  *sql.DB
	log *fleet.Log

	mu    sync.Mutex // protects tally
	tally map[string]int
}

func newProvider(t *testing.T, url string, receivers int) *provider {
	t.Helper()
	p := &provider{Fleet: fleet.Test(t, "DATABASE_URL="+url, "WEBHOOK_SECRET="+string(testSecret)), db: dbtest.Open(t, "pgx", url), log: new(fleet.Log), tally: map[string]int{}}
	p.Log = p.log
	if out, err := p.Run("-migrate"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for range receivers {
		p.join(t)
	}
	return p
}

func (p *provider) join(t *testing.T) *fleet.Instance {
	t.Helper()
	return p.MustStart(t, "-http", "127.0.0.1:0", "-max-idle", "500ms")
}

// deliver delivers body once and returns the response, such as "200" or
// "200, replayed".
func (p *provider) deliver(ctx context.Context, i *fleet.Instance, body []byte) (response string) {
	response = "none"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+i.Address("http")+"/webhooks", bytes.NewReader(body))
	if err == nil {
		r.Header.Set(signatureHeader, sign(testSecret, body, time.Now()))
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		if resp, err := client.Do(r); err == nil {
			resp.Body.Close()
			if response = fmt.Sprint(resp.StatusCode); resp.Header.Get("Webhook-Replayed") != "" {
				response += ", replayed"
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tally[response]++
	return response
}

// insist delivers body to one receiver after the other, until it has succeeded.
func (p *provider) insist(t *testing.T, n int, body []byte) (response string) {
	t.Helper()
	lockertest.Eventually(t, "an event is taken", func() bool {
		running := p.Running()
		n++
		response = p.deliver(t.Context(), running[n%len(running)], body)
		return strings.HasPrefix(response, "200")
	})
	return response
}

// send delivers body in the background, and returns a func that waits for the
// response.
func (p *provider) send(t *testing.T, i *fleet.Instance, body []byte) (response func() string) {
	responses := make(chan string, 1)
	go func() { responses <- p.deliver(t.Context(), i, body) }()
	return func() string { return <-responses }
}

// A receiver that is killed before its COMMIT leaves nothing, and another one does
// the work. If it is killed after the COMMIT, the work has been done.
func TestKilled(t *testing.T) {
	t.Parallel()
	p := newProvider(t, pgtest.Database(t), 3)
	release := holdUp(t, p.db)
	victim := p.Running()[0]
	lost := p.send(t, victim, payload(t, "evt-1", 1))
	atWork(t, p.db)
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	release()
	lost()
	if got := p.insist(t, 0, payload(t, "evt-1", 1)); got != "200" {
		t.Errorf("after a kill before COMMIT: %q", got)
	}

	victim = p.Running()[0]
	lost = p.send(t, victim, payload(t, "evt-2", 2)) // as if its response never came
	lockertest.Eventually(t, "it has committed", func() bool {
		return dbtest.Number(t, p.db, "SELECT count(*) FROM processed_events WHERE event_id = 'evt-2'") == 1
	})
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	lost()
	if got := p.insist(t, 0, payload(t, "evt-2", 2)); got != "200, replayed" {
		t.Errorf("after a kill after COMMIT: %q", got)
	}
	wantEntries(t, p.db, 2)
}

// A process that freezes in an effect keeps its event no longer than a transaction
// may be idle; when it wakes up it has not done it. Another one that has its lock
// meanwhile waits for the primary key.
func TestLongFrozenInEffect(t *testing.T) {
	t.Parallel()
	p := newProvider(t, pgtest.Database(t), 1)
	frozen := p.Running()[0]
	release := holdUp(t, p.db)
	response := p.send(t, frozen, payload(t, "evt-1", 1))
	atWork(t, p.db)
	if err := frozen.Freeze(); err != nil {
		t.Fatal(err)
	}
	release()
	e, err := parseEvent(payload(t, "evt-1", 1))
	if err != nil {
		t.Fatal(err)
	}
	other := &receiver{db: p.db, maxIdle: time.Minute}               // it has the lock, after the lease
	if o, err := other.once(t.Context(), e); err != nil || o.again { // it waits for the other transaction's end
		t.Errorf("another one: %+v, %v; want it to do the work", o, err)
	}
	if err := frozen.Thaw(); err != nil {
		t.Fatal(err)
	}
	if got := response(); strings.HasPrefix(got, "200") {
		t.Errorf("the frozen one responds with %q", got)
	}
	wantEntries(t, p.db, 1)
}

// Receivers are killed at any moment, and the database once, while each event comes
// four times at once and once more. Each takes effect once.
func TestLongExactlyOnce(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"synchronous_commit": "on"}))
	p := newProvider(t, cluster.DSN(""), 2)
	const events, kills = 300, 10
	for n := range events {
		body := payload(t, fmt.Sprint("evt-", n), 1)
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() { p.insist(t, i, body) })
		}
		switch {
		case n == events/2:
			if err := cluster.Restart(true); err != nil { // a crash
				t.Error(err)
			}
		case n%(events/kills) == 1:
			p.join(t)
			if err := p.Running()[0].Kill(); err != nil {
				t.Error(err)
			}
		}
		all.Wait()
		if got := p.insist(t, n, body); got != "200, replayed" {
			t.Errorf("a late delivery gets %q", got)
		}
	}
	rows := [][]string{{"DELIVERIES", "RESPONSE"}}
	for response, n := range p.tally {
		rows = append(rows, []string{fmt.Sprint(n), response})
	}
	fleet.Table(t.Output(), rows...)
	wantEntries(t, p.db, events)
	if regexp.MustCompile(`127\.0\.0\.1|postgres://|evt-`).MatchString(p.log.String()) {
		t.Errorf("a host or an event's id is in the log:\n%s", p.log)
	}
}

// A receiver without its tables does not start, and says what to do.
func TestSchemaMissing(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	dbtest.Execute(t, dbtest.Open(t, "pgx", url), "CREATE SCHEMA other")
	inOther := url + separator + "search_path=other"
	newProvider(t, inOther, 1)
	for name, tt := range map[string]struct{ url, want string }{
		"in another schema":    {url, "-migrate.*search_path"},
		"no database at all":   {"postgres://127.0.0.1:1/none", "does not respond"},
		"not a database's url": {"redis://ann:secret@db.example/0", "DATABASE_URL"},
	} {
		out, err := fleet.Test(t, "DATABASE_URL="+tt.url, "WEBHOOK_SECRET=s3cret").Run("-http", "127.0.0.1:0")
		if err == nil || !regexp.MustCompile(tt.want).MatchString(out) || strings.Contains(out, "secret") || strings.Contains(out, "127.0.0.1") {
			t.Errorf("%s: it ends with %v\n%s", name, err, out)
		}
	}
}
