package pgtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ErrNotInstalled reports that an optional program was not found. A test that
// needs it is skipped.
var ErrNotInstalled = errors.New("pgtest: not installed: run `make deps`")

// frontDirs are the directories in which packages put HAProxy, Pgpool-II,
// PgBouncer and Redis, besides PATH. deps.sh searches the same directories.
var frontDirs = []string{"/usr/sbin", "/usr/bin", "/opt/homebrew/bin", "/usr/local/bin"}

// A Front is a HAProxy or a Pgpool-II in front of a Cluster. It is closed with
// the Cluster, if not before.
type Front struct{ *Daemon }

// DSN returns the URL of a database of the cluster, through f. An empty name
// means "postgres".
func (f *Front) DSN(database string) string { return tcpDSN(f.Port(), database) }

// HAProxy starts a HAProxy in front of c, and of others, which take turns with
// it. It checks no server. settings are lines of its section "defaults", such
// as "timeout client 2s".
func (c *Cluster) HAProxy(settings []string, others ...*Cluster) (*Front, error) {
	program, err := findFront("haproxy")
	if err != nil {
		return nil, err
	}
	return c.front(Launch{
		Files: func(_ string, port int) map[string][]byte {
			return map[string][]byte{"haproxy.cfg": haproxySettings(port, settings, append([]*Cluster{c}, others...))}
		},
		// A master with a worker: SIGUSR2 has it read its settings again.
		Args: func(dir, _ string, _ int) []string {
			return []string{program, "-W", "-db", "-f", filepath.Join(dir, "haproxy.cfg")}
		},
		Ready: readyWhen("Loading success"),
	})
}

// haproxySettings is the content of haproxy.cfg.
func haproxySettings(port int, defaults []string, servers []*Cluster) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "global\n\tmaxconn 500\ndefaults\n\tmode tcp\n\ttimeout connect 5s\n\ttimeout client 1h\n\ttimeout server 1h\n")
	for _, line := range defaults {
		fmt.Fprintf(&b, "\t%s\n", line)
	}
	fmt.Fprintf(&b, "listen postgres\n\tbind 127.0.0.1:%d\n\tbalance roundrobin\n", port)
	for i, server := range servers {
		fmt.Fprintf(&b, "\tserver s%d 127.0.0.1:%d\n", i, server.port)
	}
	return []byte(b.String())
}

// Reload has a HAProxy read its settings again. Its old process goes on with
// the connections that it has.
func (f *Front) Reload() error { return f.Signal(sigReload) }

// Pgpool starts a Pgpool-II in front of c, and of standbys of c. settings are
// further lines of its pgpool.conf.
func (c *Cluster) Pgpool(settings []string, standbys ...*Cluster) (*Front, error) {
	program, err := findFront("pgpool")
	if err != nil {
		return nil, err
	}
	return c.front(Launch{
		Files: func(dir string, port int) map[string][]byte {
			conf := pgpoolSettings(dir, port, settings, append([]*Cluster{c}, standbys...))
			return map[string][]byte{"pgpool.conf": conf, "pcp.conf": nil, "pool_hba.conf": nil}
		},
		Args: func(dir, _ string, _ int) []string {
			file := func(name string) string { return filepath.Join(dir, name) }
			return []string{program, "-n", "-D", "-f", file("pgpool.conf"), "-F", file("pcp.conf"), "-a", file("pool_hba.conf")}
		},
		Ready:       readyWhen("successfully started"),
		CloseSignal: syscall.SIGQUIT, // SIGKILL would leave its children
	})
}

// pgpoolSettings is the content of pgpool.conf. What it does not name has
// Pgpool-II's default value.
func pgpoolSettings(dir string, port int, more []string, servers []*Cluster) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `backend_clustering_mode = 'streaming_replication'
listen_addresses = '127.0.0.1'
port = %d
socket_dir = '%[2]s'
pcp_listen_addresses = ''
pcp_socket_dir = '%[2]s'
pid_file_name = '%[2]s/pgpool.pid'
logdir = '%[2]s'
wd_ipc_socket_dir = '%[2]s'
pool_passwd = ''
sr_check_user = '%[3]s'
sr_check_period = 1
num_init_children = 16
`, port, dir, superuser)
	for i, server := range servers {
		fmt.Fprintf(&b, "backend_hostname%[1]d = '127.0.0.1'\nbackend_port%[1]d = %[2]d\nbackend_weight%[1]d = 1\n", i, server.port)
	}
	for _, line := range more {
		fmt.Fprintln(&b, line)
	}
	return []byte(b.String())
}

// findFront returns a program, or ErrNotInstalled.
func findFront(name string) (string, error) {
	if program := Find(name); program != "" {
		return program, nil
	}
	return "", fmt.Errorf("%s: %w", name, ErrNotInstalled)
}

// Find returns the first program of that name in PATH, in the directories in
// which packages put servers, or in more. It is "" if there is none.
func Find(name string, more ...string) string {
	for _, dir := range slices.Concat(filepath.SplitList(os.Getenv("PATH")), frontDirs, more) {
		if program, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return program
		}
	}
	return ""
}

// front starts a Front that is closed with c.
func (c *Cluster) front(launch Launch) (*Front, error) {
	d, err := StartDaemon(launch)
	if err != nil {
		return nil, err
	}
	return &Front{d}, c.adopt(d.Close)
}

// readyWhen returns a function for Launch.Ready: the log says text, and the port
// accepts connections.
func readyWhen(text string) func(dir, log string, port int) bool {
	return func(_, log string, port int) bool {
		if !strings.Contains(log, text) {
			return false
		}
		socket, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		return err == nil && socket.Close() == nil
	}
}
