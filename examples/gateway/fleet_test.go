package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/examples/internal/fleet"
	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	fleet.Main(main)
	dbtest.Main(m)
}

// writeAccounts writes a file with the accounts of n keys, five for each tenant.
func writeAccounts(t *testing.T, n int) (name string, keys []string) {
	t.Helper()
	var list []account
	for i := range n {
		key := fmt.Sprint("key-", i)
		sum := sha256.Sum256([]byte(key))
		keys = append(keys, key)
		list = append(list, account{SHA256: hex.EncodeToString(sum[:]), ID: fmt.Sprint("id-", i), Tenant: fmt.Sprint("tenant-", i/5), Plan: "pro"})
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	name = filepath.Join(t.TempDir(), "accounts.json")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name, keys
}

// openStream opens a stream that lasts until ctx ends, and returns the status when
// its first token is there. It is 0 if the gateway does not respond.
func openStream(ctx context.Context, client *http.Client, i *fleet.Instance, key string) (status int) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+i.Address("http"), nil)
	if err != nil {
		return 0
	}
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := client.Do(r)
	if err != nil {
		return 0
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return resp.StatusCode
	}
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		return 0
	}
	context.AfterFunc(ctx, func() { resp.Body.Close() })
	return resp.StatusCode
}

// killed fills two gateways with streams, half of each key's places on each, and
// kills one. All of its places become free, through the other one.
func killed(t *testing.T, keys int) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "data: token")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(upstream.Close)
	accounts, names := writeAccounts(t, keys)
	f := fleet.Test(t, "DATABASE_URL="+pgtest.Database(t))
	var gateways []*fleet.Instance
	for range 2 {
		gateways = append(gateways, f.MustStart(t, "-http", "127.0.0.1:0", "-upstream", upstream.URL, "-accounts", accounts))
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel) // before the gateways stop: they wait for streams
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: keys * perKey}}
	t.Cleanup(client.CloseIdleConnections)

	// together calls do for half of each key's places.
	together := func(do func(key string)) {
		var all sync.WaitGroup
		for _, key := range names {
			for range perKey / 2 {
				all.Go(func() { do(key) })
			}
		}
		all.Wait()
	}
	for _, i := range gateways {
		together(func(key string) {
			if status := openStream(ctx, client, i, key); status != http.StatusOK {
				t.Errorf("a stream within the limit gets %d", status)
			}
		})
	}
	together(func(key string) {
		if status := openStream(ctx, client, gateways[1], key); status != http.StatusTooManyRequests {
			t.Errorf("a stream beyond the limit gets %d", status)
		}
	})
	began := time.Now()
	if err := gateways[0].Kill(); err != nil {
		t.Fatal(err)
	}
	together(func(key string) {
		lockertest.Eventually(t, "a broken stream has a new one", func() bool {
			return openStream(ctx, client, gateways[1], key) == http.StatusOK
		})
	})
	t.Logf("%d streams were broken, and all had a new one after %v", keys*perKey/2, time.Since(began).Round(time.Millisecond))
}

func TestKilled(t *testing.T)     { killed(t, 10) }
func TestLongKilled(t *testing.T) { killed(t, 200) }
