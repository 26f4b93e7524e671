package httpmw_test

import (
	"context"
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

var sequential = flag.Int("sequential", 20, "requests of each sequential client, for each shape of response and protocol")

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

func unencryptedHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// A client that sends a request after the whole response to the last is never
// rejected, by either of two instances. With -sequential=1000 each client sends
// that many requests.
func TestSequentialClientIsNeverRejected(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	drivers := pgtest.Drivers()
	instances := [2]*httpmw.Middleware{
		limited(httptesting.Session(t, dbtest.Open(t, drivers[0], dsn))),
		limited(httptesting.Session(t, dbtest.Open(t, drivers[1], dsn))),
	}
	all := append(shapes(), fileShapes(t)...)
	all = append(all, proxied(t, all)...)
	for _, over := range transports {
		t.Run(over.name, func(t *testing.T) {
			t.Parallel()
			mux := [2]*http.ServeMux{http.NewServeMux(), http.NewServeMux()}
			var servers [2]*httptest.Server
			for i, m := range instances {
				servers[i] = httptest.NewUnstartedServer(mux[i])
				servers[i].Config.ErrorLog = log.New(io.Discard, "", 0)
				over.server(servers[i])
				t.Cleanup(servers[i].Close)
				for _, tt := range all {
					mux[i].Handle("/"+url.PathEscape(tt.name), m.Handler(tt.h))
				}
			}
			for _, tt := range all {
				t.Run(tt.name, func(t *testing.T) {
					clients := [2]*http.Client{over.client(servers[0]), over.client(servers[1])}
					rejected := 0
					for i := range *sequential {
						which := i % 2
						status := sequentialRequest(t, clients[which], tt.method,
							servers[which].URL+"/"+url.PathEscape(tt.name), over.name+tt.name)
						if status == http.StatusTooManyRequests {
							rejected++
						}
					}
					for _, c := range clients {
						c.CloseIdleConnections()
					}
					if rejected > 0 {
						t.Errorf("%d of %d requests were rejected", rejected, *sequential)
					}
				})
			}
		})
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

// proxied returns some of all behind a ReverseProxy, with and without flushing
// at once.
func proxied(t *testing.T, all []shape) []shape {
	t.Helper()
	mux := http.NewServeMux()
	backend := httptest.NewServer(mux)
	t.Cleanup(backend.Close)
	target, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	behind := []string{"small", "big, flushed", "length, flushed", "file of 4096", "events", "no content, flushed", "not modified, flushed"}
	var proxies []shape
	for _, tt := range all {
		if !slices.Contains(behind, tt.name) {
			continue
		}
		path := "/" + url.PathEscape(tt.name)
		mux.Handle(path, tt.h)
		rewrite := func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.URL.Path, r.Out.URL.RawPath = "/"+tt.name, path
		}
		quiet := log.New(io.Discard, "", 0)
		proxies = append(proxies,
			shape{"proxy of " + tt.name, tt.method, (&httputil.ReverseProxy{Rewrite: rewrite, ErrorLog: quiet}).ServeHTTP},
			shape{"flushing proxy of " + tt.name, tt.method, (&httputil.ReverseProxy{Rewrite: rewrite, ErrorLog: quiet, FlushInterval: -1}).ServeHTTP})
	}
	return proxies
}
