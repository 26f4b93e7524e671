package browser_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// An audience is many viewers. Each has a stream open, and loads a page every two
// seconds.
type audience struct {
	t      *testing.T
	base   string
	client *http.Client
	ctx    context.Context
	end    context.CancelFunc
	all    sync.WaitGroup

	mu      sync.Mutex // protects the fields below
	phases  []string
	current string
	took    map[string][]time.Duration // of page loads, by phase
	events  map[string]int             // that the streams got, by phase
	failure error                      // the first one
}

func newAudience(t *testing.T, origin string) *audience {
	a := &audience{
		t: t, base: origin + publicPrefix, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * viewers}},
		took: make(map[string][]time.Duration), events: make(map[string]int),
	}
	a.ctx, a.end = context.WithCancel(context.Background())
	t.Cleanup(a.leave)
	for i := range viewers {
		view := []string{"", "locks", "waits", "findings", "doctor"}[i%5]
		a.all.Go(func() { a.note(a.stream(view)) })
		a.all.Go(func() {
			pause := time.NewTimer(time.Duration(i) * 2 * time.Second / viewers)
			defer pause.Stop()
			for {
				select {
				case <-pause.C:
					a.get(view)
					pause.Reset(2 * time.Second)
				case <-a.ctx.Done():
					return
				}
			}
		})
	}
	return a
}

func (a *audience) begin(phase string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current = phase
	a.phases = append(a.phases, phase)
}

// leave ends all viewers.
func (a *audience) leave() {
	a.end()
	a.all.Wait()
	a.client.CloseIdleConnections()
}

// note keeps the first failure, unless the viewers are leaving.
func (a *audience) note(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil && a.failure == nil && a.ctx.Err() == nil {
		a.failure = err
	}
}

func (a *audience) request(path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(a.ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := a.client.Do(r)
	if err == nil && response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s: %s", path, response.Status)
	}
	return response, err
}

// get loads a page and returns it.
func (a *audience) get(view string) string {
	began := time.Now()
	response, err := a.request(view)
	if err != nil {
		a.note(err)
		return ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		a.note(err)
		return ""
	}
	took := time.Since(began)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took[a.current] = append(a.took[a.current], took)
	return string(body)
}

// stream reads the events of a view until the viewers leave.
func (a *audience) stream(view string) error {
	response, err := a.request("events?view=" + view)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("a stream has ended: %w", err)
		}
		if strings.HasPrefix(line, "event: ") {
			a.mu.Lock()
			a.events[a.current]++
			a.mu.Unlock()
		}
	}
}

func (a *audience) report(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failure != nil {
		t.Error(a.failure)
	}
	for _, phase := range a.phases {
		took := a.took[phase]
		if len(took) == 0 {
			continue
		}
		slices.Sort(took)
		t.Logf("%-14s %5d pages, p50 %v, p99 %v, longest %v; %d events", phase, len(took),
			took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), a.events[phase])
		if took[len(took)-1] > answersWithin {
			t.Errorf("%s: a page took %v", phase, took[len(took)-1])
		}
	}
	for _, phase := range []string{"many locks", "database away"} {
		if a.events[phase] < viewers {
			t.Errorf("%s: %d streams got %d events", phase, viewers, a.events[phase])
		}
	}
}
