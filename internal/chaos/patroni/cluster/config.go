//go:build linux

package cluster

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Settings are those of Patroni and etcd.
type Settings struct {
	TTL          time.Duration // of the leader's key
	LoopWait     time.Duration
	RetryTimeout time.Duration
	Synchronous  bool // synchronous_mode
	PreVote      bool // etcd's
}

// The ports.
const (
	postgresPort = 5432
	patroniPort  = 8008
	etcdPort     = 2379
	etcdPeerPort = 2380

	// ProxyPort is HAProxy's, on its client's loopback.
	ProxyPort = 5000
)

// object is one of JSON, which is YAML as well.
type object map[string]any

func seconds(d time.Duration) int { return int(d / time.Second) }

// patroniConfig returns the configuration of Patroni on n.
func (c *Cluster) patroniConfig(n *Node) ([]byte, error) {
	var etcd []string
	for _, other := range c.Nodes {
		etcd = append(etcd, fmt.Sprintf("%s:%d", other.Host.IP, etcdPort))
	}
	address := fmt.Sprintf("%s:%d", n.Host.IP, postgresPort)
	rest := fmt.Sprintf("%s:%d", n.Host.IP, patroniPort)
	return json.MarshalIndent(object{
		"scope": "latchkey", "name": n.Host.Name,
		"restapi":   object{"listen": rest, "connect_address": rest},
		"etcd3":     object{"hosts": etcd},
		"watchdog":  object{"mode": "off"},
		"bootstrap": object{"dcs": c.dynamicConfig(), "initdb": []any{object{"encoding": "UTF8"}, object{"locale": "C"}, "data-checksums"}},
		"postgresql": object{
			"listen": address, "connect_address": address,
			"data_dir": n.data(), "bin_dir": c.postgresDir, "pgpass": filepath.Join(n.dir, "pgpass"),
			"authentication": object{
				"superuser":   object{"username": "postgres", "password": "x"},
				"replication": object{"username": "replicator", "password": "x"},
			},
			"pg_hba":     []string{"local all all trust", "host all all all trust", "host replication all all trust"},
			"parameters": object{"unix_socket_directories": n.dir},
			"basebackup": object{"checkpoint": "fast"}, // else a new replica may wait for minutes, until the primary has written all it wants to write
		},
	}, "", " ")
}

// dynamicConfig returns the settings that Patroni keeps in etcd.
func (c *Cluster) dynamicConfig() object {
	return object{
		"ttl": seconds(c.TTL), "loop_wait": seconds(c.LoopWait), "retry_timeout": seconds(c.RetryTimeout),
		"synchronous_mode": c.Synchronous,
		"postgresql": object{
			"use_pg_rewind": true, "use_slots": true,
			"remove_data_directory_on_rewind_failure": true, "remove_data_directory_on_diverged_timelines": true,
			"parameters": object{
				"shared_buffers": "16MB", "max_connections": 100, "wal_keep_size": "64MB", "max_wal_size": "128MB",
				"autovacuum": "off", "wal_receiver_timeout": "3s", "wal_sender_timeout": "3s", "wal_retrieve_retry_interval": "500ms",
			},
		},
	}
}

// etcdArgs returns the arguments of etcd on n.
func (c *Cluster) etcdArgs(n *Node) []string {
	var all []string
	for _, other := range c.Nodes {
		all = append(all, fmt.Sprintf("%s=http://%s:%d", other.Host.Name, other.Host.IP, etcdPeerPort))
	}
	client, peer := fmt.Sprintf("http://%s:%d", n.Host.IP, etcdPort), fmt.Sprintf("http://%s:%d", n.Host.IP, etcdPeerPort)
	return []string{
		"--name", n.Host.Name, "--data-dir", filepath.Join(n.dir, "etcd"),
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", strings.Join(all, ","), "--initial-cluster-state", "new",
		"--heartbeat-interval", "100", "--election-timeout", "1000", "--logger", "zap",
		fmt.Sprintf("--pre-vote=%t", c.PreVote), // without it a node that was cut off disturbs the others when it returns
	}
}

// proxyConfig returns HAProxy's configuration.
func (c *Cluster) proxyConfig() string {
	var b strings.Builder
	fmt.Fprintf(&b, `global
	maxconn 500
defaults
	mode tcp
	timeout connect 1s
	timeout client 30m
	timeout server 30m
	timeout check 1s
listen primary
	bind 127.0.0.1:%d
	option httpchk OPTIONS /primary
	http-check expect status 200
	default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
`, ProxyPort)
	for _, n := range c.Nodes {
		fmt.Fprintf(&b, "\tserver %s %s:%d maxconn 100 check port %d\n", n.Host.Name, n.Host.IP, postgresPort, patroniPort)
	}
	return b.String()
}
