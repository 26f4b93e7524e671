package grpcmw_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// openSession opens a Session on a database of its own. lose ends its
// connection.
func openSession(t *testing.T, driver string) (session *sqllock.Session, lose func()) {
	t.Helper()
	db, err := sql.Open(driver, pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	session, err = sqllock.Open(t.Context(), db, sqllock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session, func() {
		_, err := db.ExecContext(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE '%latchkey%' AND pid <> pg_backend_pid()`)
		if err != nil {
			t.Error(err)
		}
	}
}

// The loss of the lock ends the handler's context, for every kind of call and
// every driver. The next call gets a lock on a new connection.
func TestLossEndsHandler(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			eachStack(t, func(t *testing.T, kind int, levels stack) {
				session, lose := openSession(t, driver)
				s := &service{work: func(ctx context.Context) error {
					if ctx.Err() != nil {
						return errors.New("ended before the loss")
					}
					lose()
					select {
					case <-ctx.Done():
					case <-time.After(patience):
						return errors.New("not ended by the loss")
					}
					if cause := context.Cause(ctx); !errors.Is(cause, sqllock.ErrLost) {
						return cause
					}
					return status.Error(codes.OutOfRange, "as expected")
				}}
				client := start(t, s, levels.limited(session)...)
				if err := kinds[kind].call(t.Context(), client, "alice"); status.Code(err) != codes.OutOfRange {
					t.Error(err)
				}
				s.work = func(context.Context) error { return nil }
				eventually(t, "a call on a new connection", func() bool {
					return kinds[kind].call(t.Context(), client, "alice") == nil
				})
			})
		})
	}
}

// A stream whose lock is lost neither sends nor receives. So a handler that
// does not watch its context stops, too.
func TestLossEndsMessages(t *testing.T) {
	for _, source := range sources {
		t.Run(source.name, func(t *testing.T) {
			session, lose := openSession(t, "pgx")
			lost := make(chan struct{})
			errs := make(chan error, 2)
			s := &service{duplex: func(stream pb.TestService_FullDuplexCallServer) error {
				if _, err := stream.Recv(); err != nil {
					return err
				}
				lose()
				<-stream.Context().Done()
				close(lost)
				errs <- stream.Send(&pb.StreamingOutputCallResponse{})
				_, err := stream.Recv()
				errs <- err
				return err
			}}
			client := start(t, s, limited(ratelimit.OneAtATime(session, namespace), source.key)...)
			stream, err := client.FullDuplexCall(as(t.Context(), "alice"))
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&pb.StreamingOutputCallRequest{ResponseStatus: named("alice")}); err != nil {
				t.Fatal(err)
			}
			wait(t, lost, "the loss")
			_ = stream.Send(&pb.StreamingOutputCallRequest{}) // not to be worked on
			for _, what := range []string{"Send", "Recv"} {
				if err := wait(t, errs, what); !errors.Is(err, sqllock.ErrLost) || status.Code(err) != codes.Aborted {
					t.Errorf("%s after the loss: %v", what, err)
				}
			}
			if _, err := stream.Recv(); err == io.EOF || status.Code(err) != codes.Aborted {
				t.Errorf("the call ended with %v", err)
			}
		})
	}
}

// The lock may be lost while RecvMsg waits. RecvMsg then fails, although it has
// received a message.
func TestLossWhileReceiving(t *testing.T) {
	session, lose := openSession(t, "pgx")
	lost := make(chan struct{})
	s := &service{duplex: func(stream pb.TestService_FullDuplexCallServer) error {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		context.AfterFunc(stream.Context(), func() { close(lost) })
		lose()
		_, err := stream.Recv()
		return err
	}}
	client := start(t, s, limited(ratelimit.OneAtATime(session, namespace), grpcmw.Metadata("user-bin"))...)
	stream, err := client.FullDuplexCall(as(t.Context(), "alice"))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.StreamingOutputCallRequest{}); err != nil {
		t.Fatal(err)
	}
	wait(t, lost, "the loss")
	_ = stream.Send(&pb.StreamingOutputCallRequest{})
	if _, err := stream.Recv(); status.Code(err) != codes.Aborted {
		t.Errorf("the call ended with %v", err)
	}
}

// While the database is down, from the start or later, calls are rejected with
// a time to wait. Once it is up again, calls are admitted.
func TestDatabaseDown(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			cluster := pgtest.New(t)
			if err := cluster.Stop(); err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open(driver, cluster.DSN(""))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			session, err := sqllock.Open(t.Context(), db, sqllock.WithLazyOpen(), sqllock.WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			s := &service{work: func(context.Context) error { return nil }}
			client := start(t, s, limited(ratelimit.OneAtATime(session, namespace), grpcmw.Metadata("user-bin"))...)
			call := func() error { return kinds[0].call(t.Context(), client, "alice") }
			for _, when := range []string{"at the start", "later"} {
				err := call()
				if status.Code(err) != codes.Unavailable {
					t.Errorf("%s: a call while the database is down: %v, want UNAVAILABLE", when, err)
				}
				if details := status.Convert(err).Details(); len(details) != 1 {
					t.Errorf("%s: details %v, want RetryInfo", when, details)
				}
				if err := cluster.StartAgain(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "a call after the database came up", func() bool { return call() == nil })
				if err := cluster.Stop(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The end of the Session ends its calls. Later calls are rejected.
func TestClosedSession(t *testing.T) {
	eachStack(t, func(t *testing.T, kind int, levels stack) {
		session, _ := openSession(t, "pgx")
		entered, cause := make(chan struct{}), make(chan error, 1)
		s := &service{work: func(ctx context.Context) error {
			close(entered)
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil
		}}
		client := start(t, s, levels.limited(session)...)
		call := make(chan error, 1)
		go func() { call <- kinds[kind].call(t.Context(), client, "alice") }()
		wait(t, entered, "the handler")
		if err := session.Close(); err != nil {
			t.Error(err)
		}
		if err := wait(t, cause, "the handler's context to end"); !errors.Is(err, sqllock.ErrClosed) {
			t.Errorf("cause %v", err)
		}
		if err := wait(t, call, "the call's end"); err != nil && status.Code(err) != codes.Aborted {
			t.Error(err)
		}
		if err := kinds[kind].call(t.Context(), client, "alice"); status.Code(err) != codes.Unavailable {
			t.Errorf("with the session closed: %v", err)
		}
	})
}
