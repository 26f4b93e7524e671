//go:build linux

package cluster

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Patroni's times. It takes no shorter ttl.
const (
	TTL          = 20 * time.Second
	LoopWait     = 2 * time.Second
	RetryTimeout = 3 * time.Second
)

// The ports.
const (
	postgresPort = 5432
	patroniPort  = 8008
	proxyPort    = 5000 // on all addresses of HAProxy's host
)

// patroniConfig returns the configuration of Patroni on n.
func (c *Cluster) patroniConfig(n *Node) string {
	return fmt.Sprintf(`
scope: latchkey
name: %[1]s
restapi: {listen: "%[2]s:%[3]d", connect_address: "%[2]s:%[3]d"}
etcd3: {hosts: [%[4]s]}
watchdog: {mode: "off"}
bootstrap:
  initdb: [encoding: UTF8, locale: C, data-checksums]
  dcs:
    ttl: %[5]d
    loop_wait: %[6]d
    retry_timeout: %[7]d
    postgresql:
      use_pg_rewind: true
      use_slots: true
      remove_data_directory_on_rewind_failure: true
      remove_data_directory_on_diverged_timelines: true
      parameters:
        {shared_buffers: 16MB, max_connections: 100, wal_keep_size: 64MB, max_wal_size: 128MB, autovacuum: "off",
        wal_receiver_timeout: 3s, wal_sender_timeout: 3s, wal_retrieve_retry_interval: 500ms}
postgresql:
  listen: "%[2]s:%[8]d"
  connect_address: "%[2]s:%[8]d"
  data_dir: %[9]s/data
  bin_dir: %[10]s
  pgpass: %[9]s/pgpass
  authentication: {superuser: {username: postgres, password: x}, replication: {username: replicator, password: x}}
  pg_hba: [local all all trust, host all all all trust, host replication all all trust]
  parameters: {unix_socket_directories: %[9]s}
  basebackup: {checkpoint: fast} # else a new replica may wait for minutes
`, n.Host.Name, n.Host.IP, patroniPort, strings.Join(c.each(`"%[2]s:2379"`), ", "),
		int(TTL.Seconds()), int(LoopWait.Seconds()), int(RetryTimeout.Seconds()), postgresPort, n.dir, postgresDir())
}

// each returns a text for each node, of its name and its address.
func (c *Cluster) each(format string) (all []string) {
	for _, n := range c.Nodes {
		all = append(all, fmt.Sprintf(format, n.Host.Name, n.Host.IP))
	}
	return all
}

// etcdArgs returns the arguments of etcd on n. Without pre-vote a node that was
// cut off disturbs the others when it returns.
func (c *Cluster) etcdArgs(n *Node) []string {
	client, peer := fmt.Sprintf("http://%s:2379", n.Host.IP), fmt.Sprintf("http://%s:2380", n.Host.IP)
	return []string{
		"--name", n.Host.Name, "--data-dir", filepath.Join(n.dir, "etcd"),
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", strings.Join(c.each("%[1]s=http://%[2]s:2380"), ","), "--initial-cluster-state", "new",
		"--heartbeat-interval", "100", "--election-timeout", "1000", "--logger", "zap", "--pre-vote",
	}
}

// proxyConfig returns HAProxy's configuration.
func (c *Cluster) proxyConfig() string {
	return fmt.Sprintf(`global
	maxconn 500
defaults
	mode tcp
	timeout connect 1s
	timeout client 30m
	timeout server 30m
	timeout check 1s
listen primary
	bind :%d
	balance roundrobin
	option httpchk OPTIONS /primary
	http-check expect status 200
	default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
%s
`, proxyPort, strings.Join(c.each(fmt.Sprintf("\tserver %%[1]s %%[2]s:%d maxconn 100 check port %d", postgresPort, patroniPort)), "\n"))
}
