// Gateway is a reverse proxy that limits how many requests each API key and
// each tenant have in flight at a time, across all of its instances. The service
// behind it may be in any language. Its responses may be streams that last
// minutes, or WebSockets.
//
//	export DATABASE_URL=postgres://user:password@host/database
//	go run . -upstream http://127.0.0.1:9000 -accounts accounts.json
//
// Copy from this file, accounts.go, websocket.go and serve.go.
package main

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

const (
	mostPlaces = 20               // of any plan, on any level
	maxHold    = 30 * time.Minute // how long a request, a stream or a WebSocket may last
	grace      = 20 * time.Second // how long they may go on after the instance was told to stop
)

func main() {
	address := flag.String("http", "127.0.0.1:8080", "where to serve; port 0 is any free port")
	upstream := flag.String("upstream", "http://127.0.0.1:9000", "the service behind the gateway")
	accounts := flag.String("accounts", "accounts.json", "file with the accounts of API keys")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *address, *upstream, *accounts); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, address, upstream, accounts string) error {
	keys, err := readAccounts(accounts)
	if err != nil {
		return err
	}
	service, err := url.Parse(upstream)
	if err != nil {
		return errors.New("the upstream is not a URL such as http://host:port")
	}
	// Open. A stream holds a lock on each level. One connection carries a
	// thousand of them. One more is needed, briefly, while connecting.
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		return errors.New("DATABASE_URL is not a URL such as postgres://user@host/database")
	}
	defer db.Close()
	db.SetMaxOpenConns(5)
	session, err := sqllock.Open(ctx, db)
	if err != nil {
		return err
	}
	defer session.Close()

	// Authentication finds the account, then the limits count for it.
	handler := keys.authenticate(limited(session, newProxy(service)))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("ready http=%s\n", listener.Addr())
	return serve(ctx, listener, handler, grace)
}

// limited puts the limits in front of next. A request gets a place on both levels
// in one round trip, or is rejected with 429. While the database is away the
// response is 503.
func limited(locks sqllock.Locker, next http.Handler) http.Handler {
	perKey := ratelimit.AtMost(mostPlaces, locks, "gateway-key",
		ratelimit.WithLimit(keyLimit), ratelimit.WithMaxHold(maxHold))
	perTenant := ratelimit.AtMost(mostPlaces, locks, "gateway-tenant",
		ratelimit.WithLimit(tenantLimit), ratelimit.WithMaxHold(maxHold))
	return httpmw.NewStack([]httpmw.Level{
		{Limiter: perKey, Key: httpmw.FromContext(keyID)},
		{Limiter: perTenant, Key: httpmw.FromContext(tenantID)},
	}).Handler(next)
}

// newProxy returns the reverse proxy. A stream may begin before its request has
// been read to the end. Over HTTP/1 net/http would close the request's body then,
// and that would break the stream.
func newProxy(upstream *url.URL) http.Handler {
	proxy := newReverseProxy(upstream)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 does not need it
		proxy.ServeHTTP(bounded{w, r.Context()}, r)
	})
}

// newReverseProxy returns the proxy itself. The context of a request ends when its
// client leaves, when a lock is lost and after maxHold. ReverseProxy then cancels
// the request to the upstream. It aborts a response that has begun, so that the
// client does not take what it has for the whole.
func newReverseProxy(upstream *url.URL) *httputil.ReverseProxy {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100
	return &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // what the upstream has flushed goes to the client at once
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.SetXForwarded()
			r.Out.Header.Del("Authorization") // the upstream gets no key of a client
			tenant, _ := tenantID(r.In.Context())
			r.Out.Header.Set("X-Tenant", tenant)
		},
		ModifyResponse: endTogether, // of WebSockets
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				return // nothing is written: httpmw responds with 503 and Retry-After
			}
			if dns, ok := errors.AsType[*net.DNSError](err); ok {
				err = errors.New(dns.Err) // without names
			} else if at, ok := errors.AsType[*net.OpError](err); ok {
				err = at.Err // without addresses
			} else if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
				err = errors.New("its certificate is not accepted") // without names
			}
			slog.Error("the upstream does not respond", "error", err)
			http.Error(w, "The service does not respond.", http.StatusBadGateway)
		},
		ErrorLog: log.New(io.Discard, "", 0), // a line with addresses for each stream that breaks
	}
}
