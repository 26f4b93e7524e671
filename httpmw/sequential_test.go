package httpmw_test

import (
	"context"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
)

var sequential = flag.Int("sequential", 30, "requests of each client of TestLongSequentialClient, for each shape of response and protocol")

// A transport is a server and a client that speak one protocol.
type transport struct {
	name   string
	server func(*httptest.Server)
	client func(*httptest.Server) *http.Client
}

var transports = []transport{
	{"HTTP/1.1", (*httptest.Server).Start, (*httptest.Server).Client},
	{"HTTP/2", func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.StartTLS()
	}, (*httptest.Server).Client},
	{"h2c", func(s *httptest.Server) {
		s.Config.Protocols = unencryptedHTTP2()
		s.Start()
	}, func(*httptest.Server) *http.Client {
		return &http.Client{Transport: &http.Transport{Protocols: unencryptedHTTP2()}}
	}},
}

// start starts a server of h that speaks only this protocol, and its client.
func (over transport) start(t *testing.T, h http.Handler) (*httptest.Server, *http.Client) {
	t.Helper()
	s := quietServer(h)
	over.server(s)
	t.Cleanup(s.Close)
	client := over.client(s)
	t.Cleanup(client.CloseIdleConnections)
	return s, client
}

func unencryptedHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// A client that sends a request after the whole response to the last is never
// rejected, by either of two instances. Every fourth request is HEAD.
func TestSequentialClientIsNeverRejected(t *testing.T) {
	t.Parallel()
	testSequentialClients(t, 6, "length", "small", "big", "events", "unlocked early", "file of 4096")
}

// That holds for every shape of response, and with -sequential=N for N requests
// of each.
func TestLongSequentialClient(t *testing.T) {
	t.Parallel()
	testSequentialClients(t, *sequential)
}

// testSequentialClients sends n requests for each of the named shapes, or for
// all.
func testSequentialClients(t *testing.T, n int, names ...string) {
	all := append(specialShapes(t), shape{"unlocked early", true, unlockEarly(t)})
	all = slices.DeleteFunc(all, func(s shape) bool {
		return s.name == "panic" || s.name == "bad length" || len(names) > 0 && !slices.Contains(names, s.name)
	})
	for _, fleet := range lockertest.Instances {
		t.Run(fleet.Name, func(t *testing.T) {
			t.Parallel()
			a, b := fleet.New(t)
			instances := []*httpmw.Middleware{stacked(a), stacked(b)}
			for _, over := range transports {
				t.Run(over.name, func(t *testing.T) {
					t.Parallel()
					testSequentialClient(t, n, instances, over, all)
				})
			}
		})
	}
}

func testSequentialClient(t *testing.T, n int, instances []*httpmw.Middleware, over transport, all []shape) {
	var servers []*httptest.Server
	var clients []*http.Client
	for _, m := range instances {
		mux := http.NewServeMux()
		for i, tt := range all {
			mux.Handle("/"+strconv.Itoa(i), m.Handler(tt.h))
		}
		s, client := over.start(t, mux)
		servers, clients = append(servers, s), append(clients, client)
	}
	for i, tt := range all {
		for request := range n {
			which := request % 2
			if request%3 == 0 { // and another connection from time to time
				clients[which].CloseIdleConnections()
			}
			method := http.MethodGet
			if request%4 == 1 && !tt.flushes { // a Flush completes a response to HEAD
				method = http.MethodHead
			}
			if code := sequentialRequest(t, clients[which], method, servers[which].URL+"/"+strconv.Itoa(i), over.name); code == http.StatusTooManyRequests {
				t.Errorf("%s: request %d was rejected", tt.name, request)
			}
		}
	}
}

// sequentialRequest reads the whole response. Like a client that knows its
// Content-Length, it does not wait for the end of the stream.
func sequentialRequest(t *testing.T, c *http.Client, method, url, id string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), httptesting.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(user, id)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if method == http.MethodHead || resp.ContentLength < 0 {
		_, err = io.Copy(io.Discard, resp.Body)
	} else {
		_, err = io.CopyN(io.Discard, resp.Body, resp.ContentLength)
	}
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

// unlockEarly returns a handler that declares a length, and releases the locks
// before the last byte.
func unlockEarly(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(big)))
		_, _ = w.Write(big[:len(big)-1])
		_ = locksOf(r.Context(), t, r.Header.Get(user)).Unlock()
		_, _ = w.Write(big[len(big)-1:])
		flush(w)
		runtime.Gosched() // to the client, if it can
	}
}
