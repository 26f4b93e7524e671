//go:build linux

package cluster

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/patroni/network"
)

// One line says which packages to install.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", "")
	if err := Check(); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

func TestConfig(t *testing.T) {
	c := &Cluster{
		Nodes: []*Node{{Host: network.Host{Name: "node1", IP: "10.77.0.1"}, dir: "/dir/node1"}, {Host: network.Host{Name: "node2", IP: "10.77.0.2"}}},
	}
	for text, wants := range map[string][]string{
		c.patroniConfig(c.Nodes[0]):               {"ttl: 20\n", "loop_wait: 2\n", "retry_timeout: 3\n", `hosts: ["10.77.0.1:2379", "10.77.0.2:2379"]`, "data_dir: /dir/node1/data\n"},
		c.proxyConfig():                           {"server node2 10.77.0.2:5432 maxconn 100 check port 8008"},
		c.MultiHost():                             {"host=10.77.0.1,10.77.0.2 port=5432,5432 "},
		strings.Join(c.etcdArgs(c.Nodes[1]), " "): {"--initial-cluster node1=http://10.77.0.1:2380,node2=http://10.77.0.2:2380 ", "--name node2 "},
	} {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		if strings.Contains(text, "%!") {
			t.Errorf("a verb without a value in\n%s", text)
		}
	}
}
