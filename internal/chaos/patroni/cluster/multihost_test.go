//go:build linux

package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	_ "github.com/lib/pq" // registers "postgres"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	os.Exit(pgtest.Main(m))
}

// A DSN with several hosts needs connect_timeout. A host that is cut off uses up
// the five seconds of an attempt otherwise, and the next host is never tried.
func TestLongMultiHostNeedsConnectTimeout(t *testing.T) {
	for _, timeout := range []string{"", " connect_timeout=10"} {
		var options []sqllock.Option
		if timeout == "" {
			options = append(options, sqllock.WithLease(10*time.Second)) // with it the five seconds, which are to end
		}
		for _, driver := range pgtest.Drivers() {
			t.Run(driver+timeout, func(t *testing.T) {
				t.Parallel()
				u, err := url.Parse(pgtest.Database(t))
				if err != nil {
					t.Fatal(err)
				}
				silent, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts: the handshake is not answered
				if err != nil {
					t.Fatal(err)
				}
				defer silent.Close()
				_, silentPort, err := net.SplitHostPort(silent.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				dsn := fmt.Sprintf("host=127.0.0.1,%s port=%s,%s user=%s dbname=%s sslmode=disable target_session_attrs=read-write%s",
					u.Hostname(), silentPort, u.Port(), u.User.Username(), strings.TrimPrefix(u.Path, "/"), timeout)
				locks, err := sqllock.Open(t.Context(), dbtest.Open(t, driver, dsn), options...)
				if timeout == "" {
					if !errors.Is(err, sqllock.ErrUnavailable) {
						t.Errorf("%v, want ErrUnavailable", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := locks.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
