package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// What the upstream flushes reaches the client at once, also where ReverseProxy
// would not see a stream.
func TestFlush(t *testing.T) {
	t.Parallel()
	for _, p := range httptesting.Protocols {
		for name, header := range map[string][2]string{
			"events":  {"Content-Type", "text/event-stream"},
			"chunked": {"Content-Type", "application/octet-stream"},
			"counted": {"Content-Length", "8"},
		} {
			t.Run(p.Name+" "+name, func(t *testing.T) {
				t.Parallel()
				s := newService(t)
				g := newFront(p.Serve(t, handler(t, sqllock.NewMemory(), s)))
				r, _ := request(t, http.MethodGet, g.URL, "k1", "")
				received := g.send(t, r)
				e := s.next(t)
				e.w.Header().Set(header[0], header[1])
				e.send(t, "one ")
				resp := received()
				read(t, resp, "one ")
				e.send(t, "two ")
				e.end()
				if rest, err := io.ReadAll(resp.Body); string(rest) != "two " || err != nil {
					t.Errorf("then %q, %v; want two", rest, err)
				}
			})
		}
	}
}

// A client that leaves cancels its request to the upstream, and frees its place.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	for _, p := range httptesting.Protocols {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			g := newFront(p.Serve(t, handler(t, sqllock.NewMemory(), s)))
			_, e, cancel := full(t, g, s, "k1")
			cancel()
			httptesting.Receive(t, e.left, "the end of the upstream's request")
			admitted(t, g, s, "k1")
		})
	}
}

// The keys of a tenant share its limit. Another tenant has its own, and its plan
// has other limits.
func TestTenant(t *testing.T) {
	t.Parallel()
	s, g := newGateway(t)
	var e *exchange
	for i := range perTenant {
		_, e, _ = stream(t, g, s, []string{"k1", "k2", "k3", "k4", "k5"}[i/perKey])
	}
	resp, _ := begin(t, g, "k6")
	wantRejected(t, resp, "gateway-tenant")
	_, free, _ := stream(t, g, s, "other")
	resp, _ = begin(t, g, "other")
	wantRejected(t, resp, "gateway-key")
	free.end()
	admitted(t, g, s, "other")
	e.end()
	admitted(t, g, s, "k6")
}

// The upstream learns the tenant, not the key. A client cannot be another tenant.
func TestUpstreamGetsNoKey(t *testing.T) {
	t.Parallel()
	s, g := newGateway(t)
	r, _ := request(t, http.MethodGet, g.URL, "k1", "")
	r.Header.Set("X-Tenant", "b")
	header := g.send(t, r)
	e := s.next(t)
	if got := e.r.Header.Values("X-Tenant"); len(got) != 1 || got[0] != "a" || e.r.Header.Get("Authorization") != "" {
		t.Errorf("the upstream gets the tenant %q and the key %q", got, e.r.Header.Get("Authorization"))
	}
	e.end()
	header()
}

// Without a valid key nothing is limited, and nothing reaches the upstream.
func TestUnauthorized(t *testing.T) {
	t.Parallel()
	s, g := newGateway(t)
	for _, key := range []string{"", "guessed"} {
		if resp, _ := begin(t, g, key); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("key %q: status %d, want 401", key, resp.StatusCode)
		}
	}
	if len(s.requests) > 0 {
		t.Error("a request without a key has reached the upstream")
	}
	go func() { (<-s.requests).end() }()
	for header, want := range map[string]int{"k1": 401, "Basic k1": 401, "bearer k1": 200} {
		r, _ := request(t, http.MethodGet, g.URL, "", "")
		r.Header.Set("Authorization", header)
		resp, err := g.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("Authorization %q: status %d, want %d", header, resp.StatusCode, want)
		}
	}
}

// A stream whose lock is lost is aborted: its client does not take what it has
// for the whole. The upstream's request is cancelled.
func TestLostLockAbortsTheStream(t *testing.T) {
	t.Parallel()
	for _, p := range httptesting.Protocols {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			s, locks := newService(t), sqllock.NewMemory()
			g := newFront(p.Serve(t, handler(t, locks, s)))
			resp, e, _ := stream(t, g, s, "k1")
			locks.Lose()
			if rest, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("the body ends cleanly after %q", rest)
			}
			httptesting.Receive(t, e.left, "the end of the upstream's request")
			admitted(t, g, s, "k1")
		})
	}
}

func TestAccountsFile(t *testing.T) {
	t.Parallel()
	const known = `[{"sha256":"%064d","id":"a","tenant":"t","plan":"pro"}]`
	name := filepath.Join(t.TempDir(), "accounts")
	for text, ok := range map[string]bool{
		known: true, strings.Replace(known, "pro", "none", 1): false, strings.Replace(known, `"tenant":"t",`, "", 1): false,
		strings.Replace(known, `"id":"a",`, "", 1): false, strings.Replace(known, "%064d", "%d", 1): false, "{}": false,
	} {
		if err := os.WriteFile(name, []byte(strings.Replace(text, "%064d", strings.Repeat("0", 64), 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readAccounts(name); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A stream may begin before its request has come to its end, as in speech
// recognition. net/http alone does not allow that over HTTP/1.
func TestStreamBeginsBeforeTheRequestEnds(t *testing.T) {
	t.Parallel()
	for _, p := range httptesting.Protocols {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			g := newFront(p.Serve(t, handler(t, sqllock.NewMemory(), s)))
			body, send := io.Pipe()
			r, _ := request(t, http.MethodPost, g.URL, "k1", "")
			r.Body, r.ContentLength = body, -1
			header := g.send(t, r)
			e := s.next(t)
			e.do <- func(e *exchange) {
				if err := http.NewResponseController(e.w).EnableFullDuplex(); err != nil {
					t.Error(err)
				}
			}
			e.send(t, "begun ")
			resp := header()
			read(t, resp, "begun ")
			go func() {
				_, _ = io.WriteString(send, "the rest")
				_ = send.Close()
			}()
			e.do <- func(e *exchange) {
				text, err := io.ReadAll(e.r.Body)
				if string(text) != "the rest" || err != nil {
					t.Errorf("the upstream gets %q, %v; want the rest", text, err)
				}
			}
			e.end()
			if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
				t.Errorf("then %q, %v; want a clean end", rest, err)
			}
		})
	}
}
