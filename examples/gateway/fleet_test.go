package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

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

// openStream opens a stream that lasts until ctx ends, and returns the status when
// its first token is there. It is 0 if the gateway does not respond.
func openStream(ctx context.Context, client *http.Client, i *fleet.Instance) (status int) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+i.Address("http"), nil)
	if err != nil {
		return 0
	}
	r.Header.Set("Authorization", "Bearer k1")
	resp, err := client.Do(r)
	if err != nil {
		return 0
	}
	context.AfterFunc(ctx, func() { resp.Body.Close() })
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		return 0
	}
	return resp.StatusCode
}

// Two gateways share the places of a key. When one is killed, all of its places
// become free, through the other one.
func TestKilled(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "data: token")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(upstream.Close)
	var list []account
	for sum, a := range table() {
		a.SHA256 = sum
		list = append(list, a)
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	accounts := filepath.Join(t.TempDir(), "accounts.json")
	if err := os.WriteFile(accounts, text, 0o600); err != nil {
		t.Fatal(err)
	}
	f := fleet.Test(t, "DATABASE_URL="+pgtest.Database(t))
	gateways := make([]*fleet.Instance, 2)
	for i := range gateways {
		gateways[i] = f.MustStart(t, "-http", "127.0.0.1:0", "-upstream", upstream.URL, "-accounts", accounts)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel) // before the gateways stop: they wait for streams
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var statuses []int
	for range perKey / 2 {
		for _, i := range gateways {
			statuses = append(statuses, openStream(ctx, client, i))
		}
	}
	statuses = append(statuses, openStream(ctx, client, gateways[1]))
	if !slices.Equal(statuses, []int{200, 200, 200, 200, http.StatusTooManyRequests}) {
		t.Errorf("streams get %d, want all but the last to begin", statuses)
	}
	if err := gateways[0].Kill(); err != nil {
		t.Fatal(err)
	}
	for range perKey / 2 {
		lockertest.Eventually(t, "a broken stream has a new one", func() bool { return openStream(ctx, client, gateways[1]) == http.StatusOK })
	}
}
