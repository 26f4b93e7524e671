package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	_ "google.golang.org/grpc"
	_ "github.com/jmoiron/sqlx"
	_ "github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails"
	_ "go.uber.org/goleak"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestSmoke(t *testing.T) {
	for _, d := range pgtest.Drivers() {
		t.Run(d, func(t *testing.T) {
			db, err := sql.Open(d, pgtest.Database(t))
			if err != nil { t.Fatal(err) }
			defer db.Close()
			ctx := context.Background()
			s, err := sqllock.Open(ctx, db)
			if err != nil { t.Fatal(err) }
			defer s.Close()
			s2, err := sqllock.Open(ctx, db)
			if err != nil { t.Fatal(err) }
			defer s2.Close()
			for i := range 1000 {
			k := sqllock.Namespace("x").Key("y")
			l, err := s.TryLock(ctx, k)
			if err != nil { t.Fatal(i, err) }
			if _, err := s2.TryLock(ctx, k); !errors.Is(err, sqllock.ErrHeld) { t.Fatal(err) }
			if _, err := s.TryLock(ctx, k); !errors.Is(err, sqllock.ErrHeld) { t.Fatal(err) }
			if err := l.Unlock(); err != nil { t.Fatal(err) }
			l, err = s2.TryAny(ctx, k, sqllock.ID(5))
			if err != nil { t.Fatal(err) }
			l2, err := s.TryAny(ctx, k, sqllock.ID(5), sqllock.Pair(1,-2))
			if err != nil { t.Fatal(err) }
			l3, err := s2.TryAny(ctx, k, sqllock.ID(5), sqllock.Pair(1,-2))
			if err != nil { t.Fatal(err) }
			l.Unlock()
			l2.Unlock()
			l3.Unlock()
			}
			t.Logf("%+v", s.Stats())
		})
	}
}
