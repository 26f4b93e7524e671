//go:build linux

// Package cluster is a PostgreSQL cluster under Patroni: on each node etcd,
// Patroni and PostgreSQL, and a HAProxy next to one client.
package cluster

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/network"
)

// Check reports, in one line, what this machine lacks.
func Check() error {
	if os.Geteuid() != 0 {
		return errors.New("this needs root on Linux, for network namespaces of its own")
	}
	missing := ""
	for program, debian := range map[string]string{"patroni": "patroni", "etcd": "etcd-server", "haproxy": "haproxy", "ip": "iproute2", "nsenter": "util-linux"} {
		if _, err := exec.LookPath(program); err != nil {
			missing += " " + debian
		}
	}
	if postgresDir() == "" {
		missing += " postgresql"
	}
	if missing != "" {
		return errors.New("programs are missing: apt-get install --no-install-recommends" + missing)
	}
	return nil
}

// postgresDir returns the directory where Debian has the programs of the newest
// PostgreSQL; empty if there is none.
func postgresDir() string {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/[1-9][0-9]/bin") // in order
	if len(dirs) == 0 {
		return ""
	}
	return dirs[len(dirs)-1]
}

// A Cluster lives in a sandbox and ends with it. It is for one goroutine.
type Cluster struct {
	Nodes []*Node

	Reinitialized int // standbys that did not find their way back alone

	account *syscall.Credential // that the servers run under
}

// A Node is a host with its servers.
type Node struct {
	Host network.Host

	dir     string
	patroni *exec.Cmd
}

// Database is where the clients work, and User their role.
const (
	Database = "app"
	User     = "app"
)

// Start starts a cluster on hosts and waits until it is whole. HAProxy runs on
// proxy.
func Start(ctx context.Context, dir string, hosts []network.Host, proxy network.Host) (c *Cluster, err error) {
	c = new(Cluster)
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err1 := strconv.ParseUint(account.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(account.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	c.account = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	for _, h := range hosts {
		c.Nodes = append(c.Nodes, &Node{Host: h, dir: filepath.Join(dir, h.Name)})
	}
	for _, n := range c.Nodes {
		if err := c.prepare(n.dir, "patroni.yml", c.patroniConfig(n)); err != nil {
			return nil, err
		}
		if _, err := c.start(n.Host, n.dir, "etcd", c.etcdArgs(n)...); err != nil {
			return nil, err
		}
	}
	for _, n := range c.Nodes {
		if err := c.StartPatroni(n); err != nil {
			return nil, err
		}
	}
	own := filepath.Join(dir, proxy.Name)
	if err := c.prepare(own, "haproxy.cfg", c.proxyConfig()); err != nil {
		return nil, err
	}
	if _, err := c.start(proxy, own, "haproxy", "-db", "-f", filepath.Join(own, "haproxy.cfg")); err != nil {
		return nil, err
	}
	if err := c.Whole(ctx, 3*time.Minute); err != nil {
		return nil, err
	}
	return c, c.proxyServes(ctx, proxy)
}

// proxyServes waits until HAProxy on h leads to the primary alone. It looks once
// a second which node that is. Before its first look it takes all nodes in turn.
// Then it takes none until it finds the primary, and closes the connections to
// standbys.
func (c *Cluster) proxyServes(ctx context.Context, h network.Host) error {
	db, err := sql.Open("pgx", dsn(h.IP, proxyPort, "postgres", "postgres"))
	if err != nil {
		return err
	}
	db.SetMaxIdleConns(0)
	var refused error
	err = fleet.Poll(ctx, 20*time.Second, "HAProxy to lead to the primary", func(ctx context.Context) (bool, error) {
		for range c.Nodes {
			var standby bool
			refused = db.QueryRowContext(ctx, "SELECT pg_is_in_recovery()").Scan(&standby)
			if refused == nil && standby {
				refused = errors.New("a standby answered")
			}
			if refused != nil {
				return false, nil
			}
		}
		return true, nil
	})
	return errors.Join(err, refused, db.Close())
}

// dsn returns a DSN of one address for both drivers.
func dsn(host string, port int, user, database string) string {
	return fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable connect_timeout=2", host, port, user, database)
}

// prepare makes a directory of the servers' account, with one file.
func (c *Cluster) prepare(dir, name, text string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644), os.Chown(dir, int(c.account.Uid), int(c.account.Gid)))
}

// start starts a program on h. Its output goes to the end of a log in dir.
func (c *Cluster) start(h network.Host, dir, program string, args ...string) (*exec.Cmd, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(filepath.Join(dir, program+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	command := h.Command(c.account, path, args...)
	command.Dir, command.Stdout, command.Stderr = dir, out, out
	command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=" + dir, "ETCD_UNSUPPORTED_ARCH=arm64"}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return command, command.Start()
}

// StartPatroni starts Patroni on n, which starts PostgreSQL.
func (c *Cluster) StartPatroni(n *Node) (err error) {
	n.patroni, err = c.start(n.Host, n.dir, "patroni", filepath.Join(n.dir, "patroni.yml"))
	return err
}

// SignalPatroni sends a signal to Patroni on n.
func (c *Cluster) SignalPatroni(n *Node, s syscall.Signal) error { return n.patroni.Process.Signal(s) }

// Kill kills Patroni and every process of PostgreSQL on n.
func (c *Cluster) Kill(n *Node) error {
	if err := n.patroni.Process.Kill(); err != nil {
		return err
	}
	_ = n.patroni.Wait() // it was killed
	text, err := os.ReadFile(filepath.Join(n.dir, "data", "postmaster.pid"))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	err = signal(first, syscall.SIGSTOP) // it starts no more
	text, err2 := os.ReadFile(fmt.Sprintf("/proc/%s/task/%[1]s/children", first))
	for _, pid := range append(strings.Fields(string(text)), first) {
		err = errors.Join(err, signal(pid, syscall.SIGKILL))
	}
	return errors.Join(err, err2)
}

// signal sends a signal to a process that may have ended.
func signal(pid string, s syscall.Signal) error {
	number, err := strconv.Atoi(pid)
	if err == nil {
		err = syscall.Kill(number, s)
	}
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// Open opens a pool on one node.
func (c *Cluster) Open(n *Node, user, database string) (*sql.DB, error) {
	db, err := sql.Open("pgx", dsn(n.Host.IP, postgresPort, user, database))
	if err == nil {
		db.SetMaxIdleConns(0)
	}
	return db, err
}

// OpenHere opens a pool on one node as the clients' role, through its Unix socket.
// No cut of the network reaches it.
func (c *Cluster) OpenHere(n *Node) (*sql.DB, error) {
	return sql.Open("pgx", dsn(n.dir, postgresPort, User, Database))
}

// MultiHost is a DSN for both drivers that names all nodes, the first one
// first.
func (c *Cluster) MultiHost() string {
	ports := strings.Repeat(fmt.Sprintf(",%d", postgresPort), len(c.Nodes))
	return fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=disable target_session_attrs=read-write connect_timeout=1",
		strings.Join(c.each("%[2]s"), ","), ports[1:], User, Database)
}

// Proxied is a DSN for both drivers that goes through HAProxy.
func Proxied() string { return dsn("127.0.0.1", proxyPort, User, Database) }

// query runs a statement on n, as a superuser, for at most two seconds. If to is
// not nil, query scans its row.
func (c *Cluster) query(ctx context.Context, n *Node, database, statement string, to any) error {
	db, err := c.Open(n, "postgres", database)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if to == nil {
		_, err = db.ExecContext(ctx, statement)
	} else {
		err = db.QueryRowContext(ctx, statement).Scan(to)
	}
	return errors.Join(err, db.Close())
}

// Exec runs statements on n, as a superuser.
func (c *Cluster) Exec(ctx context.Context, n *Node, database string, statements ...string) (err error) {
	for _, s := range statements {
		err = errors.Join(err, c.query(ctx, n, database, s, nil))
	}
	return err
}

// Holds reports whether a query with one boolean is true on n.
func (c *Cluster) Holds(ctx context.Context, n *Node, database, query string) (holds bool, err error) {
	err = c.query(ctx, n, database, query, &holds)
	return holds, err
}

// Version returns the versions of the servers.
func (c *Cluster) Version(ctx context.Context, n *Node) (version string, err error) {
	err = c.query(ctx, n, "postgres", "SELECT split_part(current_setting('server_version'), ' ', 1)", &version)
	patroni, err2 := exec.Command("patroni", "--version").Output()
	return "PostgreSQL " + version + ", " + strings.TrimSpace(string(patroni)), errors.Join(err, err2)
}
