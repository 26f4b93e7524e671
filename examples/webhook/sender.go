package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// A sender delivers webhooks as providers do: at least once, again and again until it
// hears of success.
type sender struct {
	secret []byte
	client *http.Client
	fleet  *fleet
	tally  tally
}

// A delivery is what has come of one.
type delivery struct {
	status   int
	replayed bool
	entry    int64
}

// insist delivers body until that succeeds or can never succeed, to receiver n first.
func (s *sender) insist(ctx context.Context, n int, body []byte, signature string) (delivery, error) {
	for ; ; n++ {
		d, err := s.deliver(ctx, n, body, signature)
		s.tally.count(d, err)
		switch {
		case err == nil && (d.status < 300 || d.status == http.StatusUnprocessableEntity || d.status == http.StatusUnauthorized):
			return d, nil
		case ctx.Err() != nil:
			return d, fmt.Errorf("an event could not be delivered: %w", context.Cause(ctx))
		}
		select { // 409, 503, no answer: later
		case <-time.After(10*time.Millisecond + rand.N(90*time.Millisecond)):
		case <-ctx.Done():
		}
	}
}

// deliver delivers body once.
func (s *sender) deliver(ctx context.Context, n int, body []byte, signature string) (delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.fleet.address(n)+"/webhooks", bytes.NewReader(body))
	if err != nil {
		return delivery{}, err
	}
	r.Header.Set(signatureHeader, signature)
	resp, err := s.client.Do(r)
	if err != nil {
		return delivery{}, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return delivery{}, err
	}
	d := delivery{status: resp.StatusCode, replayed: resp.Header.Get("Webhook-Replayed") != ""}
	if d.status == http.StatusOK {
		var o outcome
		err = json.Unmarshal(answer, &o)
		d.entry = o.Entry
	}
	return d, err
}

// everywhere delivers one event copies times at once, to all receivers, and once more
// when all have succeeded. All must be answered with the same entry.
func (s *sender) everywhere(ctx context.Context, e event, copies int) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	signature := sign(s.secret, body, time.Now())
	var (
		all     sync.WaitGroup
		entries = make([]int64, copies+1)
		errs    = make([]error, copies+1)
	)
	one := func(i int) {
		d, err := s.insist(ctx, i, body, signature)
		entries[i], errs[i] = d.entry, err
	}
	for i := range copies {
		all.Go(func() { one(i) })
	}
	all.Wait()
	one(copies)
	for i := range entries {
		if errs[i] != nil {
			return errs[i]
		}
		if entries[i] != entries[0] || entries[i] == 0 {
			return fmt.Errorf("event %s was answered with different entries: %v", e.ID, entries)
		}
	}
	return nil
}

// A tally counts deliveries by what came of them.
type tally struct {
	away func() // called at the first delivery that is refused with 503, if not nil

	mu     sync.Mutex // protects what follows
	counts map[string]int
	all    int
}

// The rows of a tally, as they are printed.
var tallyRows = []string{"done", "answered from before", "409 in flight", "422 other payload", "401 bad signature", "503 try again", "no answer", "else"}

func (t *tally) count(d delivery, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = make(map[string]int)
	}
	row := d.row(err)
	t.counts[row]++
	t.all++
	if row == "503 try again" && t.counts[row] == 1 && t.away != nil {
		t.away()
	}
}

func (d delivery) row(err error) string {
	switch {
	case err != nil:
		return "no answer"
	case d.status == http.StatusOK && d.replayed:
		return "answered from before"
	case d.status == http.StatusOK:
		return "done"
	case d.status == http.StatusConflict:
		return "409 in flight"
	case d.status == http.StatusUnprocessableEntity:
		return "422 other payload"
	case d.status == http.StatusUnauthorized:
		return "401 bad signature"
	case d.status == http.StatusServiceUnavailable:
		return "503 try again"
	}
	return "else"
}
