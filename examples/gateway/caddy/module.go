// Package caddy is a module for Caddy that limits how many requests are in flight
// at a time for each key. All instances share the limits, and so do other services
// on the same database. It is the directive latchkey of a Caddyfile:
//
//	latchkey {
//		database {env.DATABASE_URL}
//		level api-key 4 {http.auth.user.id}
//		level tenant 20 {http.vars.tenant}
//	}
//	reverse_proxy service:8080
//
// A request gets a place on each level or none. It is rejected with 429 and
// Retry-After, and with 503 while the database is away.
package caddy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

func init() { caddy.RegisterModule(new(Handler)) }

// A Handler is the middleware http.handlers.latchkey. Its exported fields are its
// configuration. Caddy calls its methods.
type Handler struct {
	// Database is the URL of a PostgreSQL. Placeholders such as
	// {env.DATABASE_URL} are replaced when the configuration is loaded.
	Database string `json:"database"`

	// Levels are the limits, the narrowest first.
	Levels []Level `json:"levels"`

	stack *httpmw.Middleware
	dsn   string // "" until the Session is in use

	mu    sync.Mutex // protects users
	users int        // of the Session: this configuration, and each request in flight
}

// A Level is one limit.
type Level struct {
	// Name is the namespace of the limit. Limits with the same name and database
	// are one, also in other programs.
	Name string `json:"name"`

	// Limit is how many requests are in flight at a time for each key.
	Limit int `json:"limit"`

	// Key is the key of a request, with placeholders such as
	// {http.auth.user.id}. A request with an empty placeholder is rejected with
	// 400. Several placeholders make the key of [httpmw.Join]. Clients must not
	// be able to choose it.
	Key string `json:"key"`
}

// CaddyModule tells Caddy what this is.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.latchkey", New: func() caddy.Module { return new(Handler) }}
}

// Provision checks the configuration, and opens the Session of its database unless
// another handler, or the configuration before this one, has opened it.
func (h *Handler) Provision(ctx caddy.Context) error {
	if err := h.check(); err != nil {
		return err
	}
	dsn := caddy.NewReplacer().ReplaceKnown(h.Database, "")
	if dsn == "" {
		return errors.New("latchkey: database is empty: is the environment variable set?")
	}
	shared, err := share(ctx, dsn)
	if err != nil {
		return err
	}
	h.dsn, h.users = dsn, 1
	levels := make([]httpmw.Level, len(h.Levels))
	for i, l := range h.Levels {
		levels[i] = httpmw.Level{
			Limiter: ratelimit.AtMost(l.Limit, shared.session, sqllock.Namespace(l.Name)),
			Key:     l.keyOf,
		}
	}
	h.stack = httpmw.NewStack(levels, httpmw.WithRejectHandler(noteResponse), httpmw.WithLogger(ctx.Slogger()))
	return nil
}

// mostPlaces bounds a limit. A request may have to try all places of a level.
const mostPlaces = 1000

// check returns what is wrong with the configuration.
func (h *Handler) check() error {
	if h.Database == "" {
		return errors.New("latchkey: no database: it needs a line such as: database {env.DATABASE_URL}")
	}
	if len(h.Levels) == 0 {
		return errors.New("latchkey: no level: it needs a line such as: level api-key 4 {http.auth.user.id}")
	}
	seen := make(map[string]bool)
	for _, l := range h.Levels {
		switch {
		case l.Name == "" || strings.ContainsAny(l.Name, ":#"):
			return fmt.Errorf("latchkey: level %q: a name must not be empty, and has no colon and no #", l.Name)
		case seen[l.Name]:
			return fmt.Errorf("latchkey: level %q: there are two levels of this name", l.Name)
		case l.Limit < 1 || l.Limit > mostPlaces:
			return fmt.Errorf("latchkey: level %q: the limit is %d, not 1 to %d", l.Name, l.Limit, mostPlaces)
		case l.Key == "":
			return fmt.Errorf("latchkey: level %q: no key: it needs a placeholder such as {http.auth.user.id}", l.Name)
		}
		seen[l.Name] = true
	}
	return nil
}

// keyOf returns the key of a request.
func (l Level) keyOf(r *http.Request) (string, error) {
	repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return "", errors.New("latchkey: the request has no placeholders")
	}
	var parts []httpmw.KeyFunc
	key, err := repl.ReplaceFunc(l.Key, func(_ string, value any) (any, error) {
		text := caddy.ToString(value)
		if text == "" {
			return nil, fmt.Errorf("%w: a placeholder in the key of level %q is empty", httpmw.ErrNoKey, l.Name)
		}
		parts = append(parts, func(*http.Request) (string, error) { return text, nil })
		return text, nil
	})
	if err == nil && len(parts) > 1 { // with text in between, two requests could make one key
		return httpmw.Join(parts...)(r)
	}
	return key, err
}

// Cleanup gives the Session up. Caddy calls it as soon as another configuration has
// taken over, while requests of this one go on, and a few more may begin. The
// Session lives until they have ended, unless the process ends.
func (h *Handler) Cleanup() error {
	if h.dsn != "" {
		h.leave()
	}
	return nil
}

// enter adds a user of the Session, unless the last one has left. Whether another
// configuration keeps the Session is unknown then. A closed one rejects with 503.
func (h *Handler) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users == 0 {
		return false
	}
	h.users++
	return true
}

// leave removes a user of the Session. The last one gives it up, in the background,
// since Close may take a second.
func (h *Handler) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users--; h.users == 0 {
		go func() { _, _ = sessions.Delete(h.dsn) }() // an error of its Close helps no one now
	}
}

// responded is in the context of a request, and is set when a response of the
// Middleware was sent: the request was rejected, or its lock was lost.
type responded struct{ yes bool }

type respondedKey struct{}

// noteResponse writes nothing, so that the response of the Middleware is sent.
func noteResponse(_ http.ResponseWriter, r *http.Request, _ error) {
	if response, ok := r.Context().Value(respondedKey{}).(*responded); ok {
		response.yes = true
	}
}

// ServeHTTP calls next if r has a place on each level.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if h.enter() {
		defer h.leave()
	}
	var response responded
	var err error
	r = r.WithContext(context.WithValue(r.Context(), respondedKey{}, &response))
	h.stack.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err = next.ServeHTTP(w, r)
	})).ServeHTTP(w, r)
	if response.yes {
		return nil // Caddy must not respond to err again
	}
	return err
}

var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
