package demo

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

// An event is what the provider sends.
type event struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	Amount  int64  `json:"amount"`
}

// A sender delivers webhooks as providers do: at least once, and again until it
// succeeds.
type sender struct {
	sign   func(secret, body []byte, at time.Time) string
	secret []byte
	client *http.Client
	fleet  *fleet
	tally  tally
}

// A delivery is the result of one.
type delivery struct {
	status   int
	replayed bool
	entry    int64
}

// insist delivers body until that succeeds or can never succeed. It begins with
// receiver n.
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
		select { // 409, 503, no response: later
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
	r.Header.Set("Webhook-Signature", signature)
	resp, err := s.client.Do(r)
	if err != nil {
		return delivery{}, err
	}
	defer resp.Body.Close()
	response, err := io.ReadAll(resp.Body)
	if err != nil {
		return delivery{}, err
	}
	d := delivery{status: resp.StatusCode, replayed: resp.Header.Get("Webhook-Replayed") != ""}
	if d.status == http.StatusOK {
		var o struct{ Entry int64 }
		err = json.Unmarshal(response, &o)
		d.entry = o.Entry
	}
	return d, err
}

// everywhere delivers one event copies times at once, to all receivers, and once
// more when all have succeeded. All responses must name the same entry.
func (s *sender) everywhere(ctx context.Context, e event, copies int) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	signature := s.sign(s.secret, body, time.Now())
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
			return fmt.Errorf("the responses to event %s name different entries: %v", e.ID, entries)
		}
	}
	return nil
}

// A tally counts deliveries by their responses.
type tally struct {
	away func() // called at the first delivery that is rejected with 503, if not nil

	mu     sync.Mutex // protects what follows
	counts map[row]int
	all    int
}

// A row is a row of a tally, as it is printed.
type row struct{ response, meaning string }

var (
	done           = row{"200", "the event took effect"}
	replayed       = row{"200, replayed", "the event had taken effect; the response is the first one's"}
	inFlight       = row{"409", "another delivery of the event is in progress; try again later"}
	otherPayload   = row{"422", "the event had come with another payload; rejected for good"}
	badSignature   = row{"401", "the signature is wrong; rejected for good"}
	unavailable    = row{"503", "the receiver cannot reach its database; try again later"}
	noResponse     = row{"none", "the receiver was killed, or is not up yet; try again later"}
	unexpected     = row{"other", "unexpected"}
	tallyRows      = []row{done, replayed, inFlight, otherPayload, badSignature, unavailable, noResponse, unexpected}
	rowsByResponse = map[int]row{
		http.StatusConflict: inFlight, http.StatusUnprocessableEntity: otherPayload,
		http.StatusUnauthorized: badSignature, http.StatusServiceUnavailable: unavailable,
	}
)

func (t *tally) count(d delivery, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = make(map[row]int)
	}
	r := d.row(err)
	t.counts[r]++
	t.all++
	if r == unavailable && t.counts[r] == 1 && t.away != nil {
		t.away()
	}
}

func (d delivery) row(err error) row {
	switch {
	case err != nil:
		return noResponse
	case d.status == http.StatusOK && d.replayed:
		return replayed
	case d.status == http.StatusOK:
		return done
	}
	if r, ok := rowsByResponse[d.status]; ok {
		return r
	}
	return unexpected
}
