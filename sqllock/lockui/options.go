package lockui

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// An Option adds to what [New] shows, or says who may see it.
type Option func(*options)

type options struct {
	sessions  []namedSession
	limiters  []Limiter
	campaigns []namedCampaign
	authorize func(*http.Request) bool // nil: loopback only
	terminate func(*http.Request) bool // nil: nobody may
	operator  func(*http.Request) string
	names     bool
	schema    string        // of the registry's tables; empty: the search_path finds them
	long      time.Duration // a lock held for longer is a finding; 0: no limit
	log       *slog.Logger
}

type namedSession struct {
	name    string
	session *sqllock.Session
}

type namedCampaign struct {
	name     string
	campaign *election.Campaign
}

// WithSession shows s under name. It may be given several times. The page shows
// name to every viewer.
//
// s should be on the database of the page, which the doctor examines.
//
// WithSession panics if name is empty or s is nil.
func WithSession(name string, s *sqllock.Session) Option {
	if name == "" || s == nil {
		panic("lockui: WithSession needs a name and a Session")
	}
	return func(o *options) { o.sessions = append(o.sessions, namedSession{name, s}) }
}

// A Limiter is what [WithLimiter] shows: a *ratelimit.Limiter.
type Limiter interface {
	inside.Limiter // its figures

	Namespace() sqllock.Namespace
	Limit() int
}

// WithLimiter shows l under its namespace. It may be given several times.
//
// WithLimiter panics if l is nil.
func WithLimiter(l Limiter) Option {
	if inside.IsNil(l) {
		panic("lockui: WithLimiter needs a Limiter")
	}
	return func(o *options) { o.limiters = append(o.limiters, l) }
}

// WithCampaign shows under name whether this process leads. It may be given several
// times. The page shows name to every viewer.
//
// WithCampaign panics if name is empty or c is nil.
func WithCampaign(name string, c *election.Campaign) Option {
	if name == "" || c == nil {
		panic("lockui: WithCampaign needs a name and a Campaign")
	}
	return func(o *options) { o.campaigns = append(o.campaigns, namedCampaign{name, c}) }
}

// WithAuthorize makes the page answer exactly the requests for which may returns
// true, from any address. The page calls may for each request, before it does
// anything else. An open page makes one each second. may must be safe for concurrent
// use.
//
// Without this option the page answers requests from this machine only: see
// [Handler].
//
// WithAuthorize panics if may is nil.
func WithAuthorize(may func(*http.Request) bool) Option {
	if may == nil {
		panic("lockui: WithAuthorize needs a function that decides")
	}
	return func(o *options) { o.authorize = may }
}

// WithTerminate lets a viewer end a server session of PostgreSQL, with all its
// locks, if may returns true for the request. The page calls may for each view, and
// shows no link to the form otherwise. It calls may again for the form that asks for
// confirmation and for the POST that ends the session; may must be safe for
// concurrent use. It counts in addition to [WithAuthorize].
//
// The role of the page's *sql.DB must be the role of the session, a member of it,
// or a member of pg_signal_backend. The log has a line before each attempt, and one
// with its result.
//
// WithTerminate panics if may is nil.
func WithTerminate(may func(*http.Request) bool) Option {
	if may == nil {
		panic("lockui: WithTerminate needs a function that decides")
	}
	return func(o *options) { o.terminate = may }
}

// WithOperator writes into the log who has ended a session: the lines about it have
// what name returns for the request, as operator. Without this option they do not
// say who it was.
//
// WithOperator panics if name is nil.
func WithOperator(name func(*http.Request) string) Option {
	if name == nil {
		panic("lockui: WithOperator needs a function that names the operator")
	}
	return func(o *options) { o.operator = name }
}

// WithNames shows what clients have written about themselves: the name and the
// holder of a registered lock, the application name and the address of a client.
// These may be personal data. Without this option no view has them, nor has the
// JSON.
func WithNames() Option { return func(o *options) { o.names = true } }

// WithSchema names the schema of the registry's tables, as the options of that name
// of lockwatch and lockdoctor do, and passes it to both. Without this option the
// search_path finds the tables. It is needed if [sqllock.WithRegistry] names a
// schema that the search_path of the page's *sql.DB does not have.
//
// WithSchema panics if schema is empty.
func WithSchema(schema string) Option {
	if schema == "" {
		panic("lockui: WithSchema needs a schema's name")
	}
	return func(o *options) { o.schema = schema }
}

// WithLongHeld makes each lock a finding that is held for longer than limit, as
// [lockwatch.WithLongHeld] does. Without this option there is no such finding.
//
// WithLongHeld panics if limit is not positive.
func WithLongHeld(limit time.Duration) Option {
	if limit <= 0 {
		panic("lockui: WithLongHeld needs a positive duration")
	}
	return func(o *options) { o.long = limit }
}

// WithLogger sets the logger of the page. The default is slog.Default(). No log
// line holds a key, an id, a name or a host, but for what [WithOperator] returns.
//
// WithLogger panics if log is nil.
func WithLogger(log *slog.Logger) Option {
	if log == nil {
		panic("lockui: WithLogger needs a logger")
	}
	return func(o *options) { o.log = log }
}

// diagnosis returns a diagnosis that has seen nothing yet.
func (o options) diagnosis() *lockwatch.Diagnosis {
	if o.long == 0 {
		return lockwatch.NewDiagnosis()
	}
	return lockwatch.NewDiagnosis(lockwatch.WithLongHeld(o.long))
}
