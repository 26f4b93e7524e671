package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	copies  = 4  // deliveries of an event at once
	senders = 16 // events under way at once
)

// demonstrate starts the receivers, delivers events, and accounts for them.
func demonstrate(ctx context.Context, f flags, url string, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.patience, errors.New("the time set by -patience is up"))
	defer cancel()
	if err := migrate(ctx, url); err != nil {
		return err
	}
	secret := rand.Text()
	out = &wholeWrites{w: out}
	fl, err := startFleet(ctx, f, out, crashPlan(f.events), "DATABASE_URL="+url, "WEBHOOK_SECRET="+secret)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fl.stop()) }()
	s := &sender{secret: []byte(secret), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: copies * senders}}, fleet: fl}
	defer s.client.CloseIdleConnections()
	s.tally.away = func() { fmt.Fprintln(out, "a receiver cannot work now, and says so") }

	run := runName()
	fmt.Fprintf(out, "%d receivers, a process each; %d events, each delivered %d times at once and once more\n", fleetSize, f.events, copies)
	sent, err := s.sendAll(ctx, run, f.events, out)
	if err != nil {
		return err
	}
	if err := s.sendBad(ctx, sent[0]); err != nil {
		return err
	}
	return s.account(ctx, url, run, sent, out)
}

// runName is what the ids of this run's events begin with.
func runName() string {
	name := make([]byte, 4)
	_, _ = rand.Read(name) // never fails
	return "evt-" + hex.EncodeToString(name) + "-"
}

// sendAll delivers n events, several at a time.
func (s *sender) sendAll(ctx context.Context, run string, n int, out io.Writer) ([]event, error) {
	events := make([]event, n)
	errs := make([]error, n)
	next := make(chan int)
	var workers sync.WaitGroup
	for range senders {
		workers.Go(func() {
			for i := range next {
				errs[i] = s.everywhere(ctx, events[i], copies)
			}
		})
	}
	for i := range events {
		events[i] = event{ID: fmt.Sprintf("%s%04d", run, i+1), Account: fmt.Sprintf("acct-%d", i%7), Amount: int64(100 + i)}
		next <- i
		if (i+1)%50 == 0 {
			fmt.Fprintf(out, "%d events begun\n", i+1)
		}
	}
	close(next)
	workers.Wait()
	return events, errors.Join(errs...)
}

// sendBad delivers what must be refused: a known event with another amount, and a
// new one whose signature is somebody else's.
func (s *sender) sendBad(ctx context.Context, known event) error {
	known.Amount *= 1000
	for _, bad := range []struct {
		e      event
		secret []byte
		want   int
	}{
		{known, s.secret, http.StatusUnprocessableEntity},
		{event{ID: known.ID + "-forged", Account: known.Account, Amount: 1}, []byte("guessed"), http.StatusUnauthorized},
	} {
		body, err := json.Marshal(bad.e)
		if err != nil {
			return err
		}
		d, err := s.insist(ctx, 0, body, sign(bad.secret, body, time.Now()))
		if err != nil {
			return err
		}
		if d.status != bad.want {
			return fmt.Errorf("a webhook that must be refused with %d was answered %d", bad.want, d.status)
		}
	}
	return nil
}

// wholeWrites keeps lines of several goroutines apart.
type wholeWrites struct {
	mu sync.Mutex // protects w
	w  io.Writer
}

func (w *wholeWrites) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}
