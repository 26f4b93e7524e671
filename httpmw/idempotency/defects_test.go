package idempotency_test

import (
	"compress/gzip"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestPoolOfPgx(t *testing.T) {
	t.Parallel()
	for _, size := range []int32{4, 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			b := oneBank(t)
			config, err := pgxpool.ParseConfig(b.dsn)
			if err != nil {
				t.Fatal(err)
			}
			config.MaxConns = size
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			b.db = stdlib.OpenDBFromPool(pool)
			t.Cleanup(func() { _ = b.db.Close() })
			var inside atomic.Int32
			most := make(chan struct{})
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b.record(r)
				if inside.Add(1) == 3 {
					close(most)
				}
				httptesting.Stay(r.Context(), most)
				if _, err := pool.Exec(r.Context(), "SELECT 1"); err != nil {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				w.WriteHeader(http.StatusCreated)
			})
			b.askMany(40, b.serve(b.once(sqllock.NewMemory()), h))
		})
	}
}

func TestMistakes(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		b.setUp(`CREATE ROLE "poor_%s"`)
		var role string
		if err := b.db.QueryRow("SELECT quote_ident('poor_' || current_database())").Scan(&role); err != nil {
			t.Fatal(err)
		}
		defer b.do("DROP ROLE " + role)
		for name, do := range map[string]func(tx *sql.Tx){
			"role": func(tx *sql.Tx) { _, _ = tx.Exec("SET LOCAL ROLE " + role) },
			"ro":   func(tx *sql.Tx) { _, _ = tx.Exec("SET TRANSACTION READ ONLY") },
			"rows": func(tx *sql.Tx) {
				rows, err := tx.QueryContext(t.Context(), "SELECT generate_series(1, 100000)") //nolint:sqlclosecheck // that is the bug
				if err != nil || !rows.Next() || rows.Err() != nil {
					t.Errorf("no rows: %v", err)
				}
			},
		} {
			s := b.serve(b.once(sqllock.NewMemory()), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b.record(r)
				tx, _ := idempotency.Tx(r.Context())
				do(tx)
				w.WriteHeader(http.StatusCreated)
			}))
			r := mustAsk(t, s, demand{key: name})
			if r.StatusCode != 500 || r.Header.Get("Retry-After") != "" {
				t.Errorf("%s: %d", name, r.StatusCode)
			}
		}
		t.Log(b.log.String())
	})
}

func TestLines(t *testing.T) {
	b := oneBank(t)
	s := b.serve(b.once(b.locks()), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Lines", "a\r\nb")
	}))
	first, again := mustAsk(t, s, demand{key: "k-1"}), mustAsk(t, s, demand{key: "k-1"})
	if first.Header.Get("X-Lines") != again.Header.Get("X-Lines") {
		t.Errorf("%q %q", first.Header, again.Header)
	}
}

func TestGzipInside(t *testing.T) {
	b := oneBank(t)
	s := b.serve(b.once(b.locks()), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, "paid")
			_ = z.Close()
			return
		}
		_, _ = io.WriteString(w, "paid")
	}))
	mustAsk(t, s, demand{key: "k-1", header: http.Header{"Accept-Encoding": {"gzip"}}})
	r := mustAsk(t, s, demand{key: "k-1", header: http.Header{"Accept-Encoding": {"identity"}}})
	if r.Text != "paid" {
		t.Errorf("%q %v", r.Text, r.Header)
	}
}
