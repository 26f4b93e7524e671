package main

import (
	"bytes"
	"context"
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

// newReceivers starts receivers on a database with their tables.
func newReceivers(t *testing.T, url string, n int) *fleet.Fleet {
	t.Helper()
	f := fleet.Test(t, "DATABASE_URL="+url, "WEBHOOK_SECRET="+string(testSecret))
	if out, err := f.Run("-migrate"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for range n {
		f.MustStart(t, "-http", "127.0.0.1:0")
	}
	return f
}

// deliver delivers body once and returns the response, such as "200" or
// "200, replayed".
func deliver(ctx context.Context, i *fleet.Instance, body []byte) (response string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+i.Address("http")+"/webhooks", bytes.NewReader(body))
	if err != nil {
		return err.Error()
	}
	r.Header.Set(signatureHeader, sign(testSecret, body, time.Now()))
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		return err.Error()
	}
	resp.Body.Close()
	if resp.Header.Get("Webhook-Replayed") != "" {
		return fmt.Sprint(resp.StatusCode, ", replayed")
	}
	return fmt.Sprint(resp.StatusCode)
}

// insist delivers body to one receiver after the other, until it has succeeded.
func insist(t *testing.T, f *fleet.Fleet, body []byte) (response string) {
	t.Helper()
	n := 0
	lockertest.Eventually(t, "an event is taken", func() bool {
		if running := f.Running(); len(running) > 0 {
			n++
			response = deliver(t.Context(), running[n%len(running)], body)
		}
		return strings.HasPrefix(response, "200")
	})
	return response
}

// Two receivers share the events.
func TestFleet(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	f := newReceivers(t, url, 2)
	for n, want := range []string{"200", "200, replayed"} {
		if got := deliver(t.Context(), f.Running()[n], payload(t, "evt-1", 1)); got != want {
			t.Errorf("receiver %d responds with %q, want %q", n, got, want)
		}
	}
	wantEntries(t, dbtest.Open(t, "pgx", url), 1)
}

// Receivers are killed at any moment, and the database once, while each event comes
// twice at once and once more. Each takes effect once.
func TestLongExactlyOnce(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"synchronous_commit": "on"}))
	f := newReceivers(t, cluster.DSN(""), 3)
	db := dbtest.Open(t, "pgx", cluster.DSN(""))
	done, events := make(chan struct{}), 0
	var provider sync.WaitGroup
	provider.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			body := payload(t, fmt.Sprint("evt-", events), 1)
			events++
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() { insist(t, f, body) })
			}
			both.Wait()
			if got := insist(t, f, body); got != "200, replayed" {
				t.Errorf("a late delivery gets %q", got)
			}
		}
	})
	f.Kills(t, 6, func() error { return cluster.Restart(true) }, func() int {
		return fleet.Count(db, "SELECT count(*) FROM processed_events")
	}, "-http", "127.0.0.1:0")
	close(done)
	provider.Wait()
	wantEntries(t, db, events)
}

// A receiver without its tables, or without a database, does not start. It says
// what to do, and shows no part of a URL.
func TestDoesNotStart(t *testing.T) {
	t.Parallel()
	f := fleet.Test(t, "DATABASE_URL="+pgtest.Database(t), "WEBHOOK_SECRET=s3cret")
	if out, err := f.Run("-http", "127.0.0.1:0"); err == nil || !regexp.MustCompile("-migrate.*search_path").MatchString(out) {
		t.Errorf("without tables it ends with %v\n%s", err, out)
	}
	f.HidesURL(t, []string{"postgres://127.0.0.1:1/nowhere", "redis://ann:secret@db.example/0"}, "-http", "127.0.0.1:0")
}
