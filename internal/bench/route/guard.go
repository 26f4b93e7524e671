// Package route serves a route that does nothing, over HTTP/1.1 and gRPC, on
// loopback, behind different limiters. Its clients cost little, so that the
// difference between limiters shows.
package route

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/bench/redispeer"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// userHeader is the header that names the user of a request, in both protocols.
// Requests to bare routes carry it too, so that all requests are alike.
const userHeader = "user"

const namespace = "bench"

// A Guard is a limiter of one request at a time for each user, in front of
// either kind of server.
type Guard struct {
	handler func(http.Handler) http.Handler
	unary   grpc.UnaryServerInterceptor // nil: none

	// Hold takes the place of a user, as an instance does that serves a request.
	Hold func(ctx context.Context, user string) (give func() error, err error)

	close func() error
}

// Close gives back what the Guard has opened.
func (g *Guard) Close() error { return g.close() }

// Bare lets everything through.
func Bare() *Guard {
	return &Guard{
		handler: func(h http.Handler) http.Handler { return h },
		Hold: func(context.Context, string) (func() error, error) {
			return nil, errors.New("route: nothing to hold on a bare route")
		},
		close: func() error { return nil },
	}
}

// Memory is this kit without a database.
func Memory() *Guard {
	return kit(sqllock.NewMemory(), func() error { return nil })
}

// Postgres is this kit on a Session of its own, over pgx, as one instance of a
// service has it.
func Postgres(ctx context.Context, dsn string) (*Guard, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(5)
	s, err := sqllock.Open(ctx, db)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return kit(s, func() error { return errors.Join(s.Close(), db.Close()) }), nil
}

func kit(locks sqllock.Locker, closeLocks func() error) *Guard {
	l := ratelimit.OneAtATime(locks, namespace)
	return &Guard{
		handler: httpmw.New(l, httpmw.Header(userHeader)).Handler,
		unary:   grpcmw.UnaryServerInterceptor(l, grpcmw.Metadata(userHeader)),
		Hold: func(ctx context.Context, user string) (func() error, error) {
			lock, err := l.Acquire(ctx, user)
			return lock.Unlock, err
		},
		close: closeLocks,
	}
}

// Redis is the limiter that people build by hand, over go-redis at its
// defaults.
func Redis(addr string) *Guard {
	client := redis.NewClient(&redis.Options{Addr: addr})
	l := redispeer.New(client, namespace, time.Minute)
	return &Guard{
		handler: func(h http.Handler) http.Handler { return l.Handler(userHeader, h) },
		unary:   l.UnaryServerInterceptor(userHeader),
		Hold:    l.Acquire,
		close:   client.Close,
	}
}
