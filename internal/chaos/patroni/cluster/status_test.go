//go:build linux

package cluster

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/patroni/network"
)

func TestWhole(t *testing.T) {
	tests := []struct {
		name    string
		members string // as Patroni reports them
		want    bool
		synced  bool   // the same, in synchronous mode
		lagging string // by their places
	}{
		{"whole", `[{"role":"leader","state":"running","timeline":3},{"role":"replica","state":"streaming","timeline":3,"lag":0},{"role":"replica","state":"running","timeline":3,"lag":8}]`, true, false, ""},
		{"synchronous", `[{"role":"leader","state":"running","timeline":3},{"role":"sync_standby","state":"streaming","timeline":3,"lag":0},{"role":"replica","state":"streaming","timeline":3,"lag":0}]`, true, true, ""},
		{"no leader", `[{"role":"replica","state":"running","timeline":3,"lag":0},{"role":"replica","state":"running","timeline":3,"lag":0},{"role":"replica","state":"running","timeline":3,"lag":0}]`, false, false, "1 2 3"},
		{"a node is missing", `[{"role":"leader","state":"running","timeline":3},{"role":"replica","state":"running","timeline":3,"lag":0}]`, false, false, ""},
		{"an old timeline", `[{"role":"leader","state":"running","timeline":3},{"role":"replica","state":"running","timeline":2,"lag":0},{"role":"replica","state":"running","timeline":3,"lag":0}]`, false, false, "2"},
		{"far behind", `[{"role":"leader","state":"running","timeline":3},{"role":"replica","state":"running","timeline":3,"lag":9999999},{"role":"replica","state":"running","timeline":3,"lag":0}]`, false, false, "2"},
		{"unknown lag", `[{"role":"leader","state":"running","timeline":3},{"role":"replica","state":"running","timeline":3,"lag":"unknown"},{"role":"replica","state":"running","timeline":3,"lag":0}]`, false, false, "2"},
		{"starting", `[{"role":"leader","state":"running","timeline":3},{"role":"replica","state":"starting","timeline":3,"lag":0},{"role":"replica","state":"running","timeline":3,"lag":0}]`, false, false, "2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var members []member
			if err := json.Unmarshal([]byte(tt.members), &members); err != nil {
				t.Fatal(err)
			}
			for i := range members {
				members[i].Name = strconv.Itoa(i + 1)
			}
			if names := lagging(members); !slices.Equal(names, strings.Fields(tt.lagging)) {
				t.Errorf("lagging %q, want %q", names, tt.lagging)
			}
			if got, synced := whole(members, 3, false), whole(members, 3, true); got != tt.want || synced != tt.synced {
				t.Errorf("whole %t, and %t in synchronous mode; want %t, %t", got, synced, tt.want, tt.synced)
			}
		})
	}
}

// One line says which packages to install.
func TestMissing(t *testing.T) {
	look := func(program string) (string, error) {
		if program == "etcd" || program == "haproxy" {
			return "", errors.New("not found")
		}
		return program, nil
	}
	err := missing(look, false)
	if err == nil || !strings.HasSuffix(err.Error(), " etcd-server haproxy postgresql") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
	if err := missing(func(string) (string, error) { return "", nil }, true); err != nil {
		t.Errorf("all is there: %v", err)
	}
}

func TestNewestPostgres(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"9", "15", "17", "notes"} {
		if err := os.MkdirAll(filepath.Join(dir, version, "bin"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	got, err := postgresDir(filepath.Join(dir, "*", "bin"))
	if want := filepath.Join(dir, "17", "bin"); err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	if _, err := postgresDir(filepath.Join(dir, "none", "*", "bin")); err == nil {
		t.Error("found in a directory that does not exist")
	}
}

func TestConfig(t *testing.T) {
	c := &Cluster{
		Settings: Settings{TTL: 6 * time.Second, LoopWait: time.Second, RetryTimeout: 2 * time.Second, Synchronous: true},
		Nodes:    []*Node{{Host: network.Host{Name: "node1", IP: "10.77.0.1"}, dir: "/dir/node1"}, {Host: network.Host{Name: "node2", IP: "10.77.0.2"}}},
	}
	text, err := c.patroniConfig(c.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"ttl": 6`, `"loop_wait": 1`, `"retry_timeout": 2`, `"synchronous_mode": true`, `"10.77.0.2:2379"`, `"data_dir": "/dir/node1/data"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("Patroni's configuration lacks %s", want)
		}
	}
	if want := "server node2 10.77.0.2:5432 maxconn 100 check port 8008"; !strings.Contains(c.proxyConfig(), want) {
		t.Errorf("HAProxy's configuration lacks %s", want)
	}
	if want := "host=10.77.0.1,10.77.0.2 port=5432,5432 "; !strings.HasPrefix(c.MultiHost(), want) {
		t.Errorf("the DSN is %s", c.MultiHost())
	}
}
