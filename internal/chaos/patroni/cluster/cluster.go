//go:build linux

package cluster

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/network"
)

// A Cluster lives in a sandbox and ends with it. It is for one goroutine.
type Cluster struct {
	Settings
	Nodes []*Node

	Reinitialized int // standbys that did not find their way back alone

	postgresDir string
	account     *syscall.Credential
}

// A Node is a host with its servers.
type Node struct {
	Host network.Host

	dir           string
	etcd, patroni *exec.Cmd // nil: killed
}

func (n *Node) data() string { return filepath.Join(n.dir, "data") }

// Database is where the clients work, and User their role.
const (
	Database = "app"
	User     = "app"
)

// Start starts a cluster on hosts and waits until it is whole. HAProxy runs on
// proxy.
func Start(ctx context.Context, dir string, set Settings, hosts []network.Host, proxy network.Host) (c *Cluster, err error) {
	c = &Cluster{Settings: set}
	if c.postgresDir, err = postgresDir(postgresGlob); err != nil {
		return nil, err
	}
	if c.account, err = account(); err != nil {
		return nil, err
	}
	for _, h := range hosts {
		c.Nodes = append(c.Nodes, &Node{Host: h, dir: filepath.Join(dir, h.Name)})
	}
	for _, n := range c.Nodes {
		if err := c.prepare(n); err != nil {
			return nil, err
		}
		if err := c.StartEtcd(n); err != nil {
			return nil, err
		}
	}
	for _, n := range c.Nodes {
		if err := c.StartPatroni(n); err != nil {
			return nil, err
		}
	}
	if err := c.startProxy(dir, proxy); err != nil {
		return nil, err
	}
	return c, c.Whole(ctx, 3*time.Minute)
}

// prepare makes n's directory and Patroni's configuration.
func (c *Cluster) prepare(n *Node) error {
	if err := os.Mkdir(n.dir, 0o700); err != nil {
		return err
	}
	config, err := c.patroniConfig(n)
	if err != nil {
		return err
	}
	name := filepath.Join(n.dir, "patroni.yml")
	return errors.Join(os.WriteFile(name, config, 0o644), os.Chown(n.dir, int(c.account.Uid), int(c.account.Gid)))
}

// StartEtcd starts etcd on n.
func (c *Cluster) StartEtcd(n *Node) (err error) {
	n.etcd, err = c.start(n.Host, n.dir, "etcd", c.etcdArgs(n)...)
	return err
}

// StartPatroni starts Patroni on n, which starts PostgreSQL.
func (c *Cluster) StartPatroni(n *Node) (err error) {
	n.patroni, err = c.start(n.Host, n.dir, "patroni", filepath.Join(n.dir, "patroni.yml"))
	return err
}

func (c *Cluster) startProxy(dir string, h network.Host) error {
	name := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(name, []byte(c.proxyConfig()), 0o644); err != nil {
		return err
	}
	own := filepath.Join(dir, h.Name)
	if err := errors.Join(os.Mkdir(own, 0o700), os.Chown(own, int(c.account.Uid), int(c.account.Gid))); err != nil {
		return err
	}
	_, err := c.start(h, own, "haproxy", "-db", "-f", name)
	return err
}

// start starts a program on h. Its output goes to the end of a log in dir.
func (c *Cluster) start(h network.Host, dir, program string, args ...string) (*exec.Cmd, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, program+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := h.Command(c.account, path, args...)
	command.Dir, command.Stdout, command.Stderr = dir, log, log
	command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=" + dir, "ETCD_UNSUPPORTED_ARCH=arm64"}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return command, command.Start()
}

// KillEtcd kills etcd on n.
func (c *Cluster) KillEtcd(n *Node) error {
	err := end(n.etcd)
	n.etcd = nil
	return err
}

// KillPatroni kills Patroni on n. PostgreSQL stays.
func (c *Cluster) KillPatroni(n *Node) error {
	err := end(n.patroni)
	n.patroni = nil
	return err
}

// SignalPatroni sends a signal to Patroni on n.
func (c *Cluster) SignalPatroni(n *Node, s syscall.Signal) error { return n.patroni.Process.Signal(s) }

// end kills a process and reaps it.
func end(c *exec.Cmd) error {
	if c == nil {
		return errors.New("cluster: it does not run")
	}
	if err := c.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = c.Wait() // it was killed
	return nil
}

// KillPostmaster kills the first process of PostgreSQL on n. The others end when
// they notice.
func (c *Cluster) KillPostmaster(n *Node) error {
	pid, err := n.postmaster()
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// KillPostgres kills every process of PostgreSQL on n.
func (c *Cluster) KillPostgres(n *Node) error {
	pid, err := n.postmaster()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil { // it starts no more
		return err
	}
	children, err := childrenOf(pid)
	for _, child := range append(children, pid) {
		if e := syscall.Kill(child, syscall.SIGKILL); e != nil && !errors.Is(e, syscall.ESRCH) {
			err = errors.Join(err, e)
		}
	}
	return err
}

func (n *Node) postmaster() (int, error) {
	text, err := os.ReadFile(filepath.Join(n.data(), "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(first)
}

// childrenOf returns the processes that parent has started.
func childrenOf(parent int) (all []int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", parent))
	for _, field := range strings.Fields(string(text)) {
		pid, e := strconv.Atoi(field)
		all, err = append(all, pid), errors.Join(err, e)
	}
	return all, err
}

// Open opens a pool on one node, as a superuser.
func (c *Cluster) Open(n *Node, database string) (*sql.DB, error) {
	db, err := sql.Open("pgx", fmt.Sprintf("host=%s port=%d user=postgres dbname=%s sslmode=disable connect_timeout=2", n.Host.IP, postgresPort, database))
	if err == nil {
		db.SetMaxIdleConns(0)
	}
	return db, err
}

// socket is the part of a DSN that names the Unix socket of PostgreSQL on n. No
// cut of the network reaches it.
func (n *Node) socket() string {
	return fmt.Sprintf("host=%s port=%d sslmode=disable connect_timeout=2", n.dir, postgresPort)
}

// OpenHere opens a pool on one node as the clients' role, through its Unix socket.
func (c *Cluster) OpenHere(n *Node) (*sql.DB, error) {
	return sql.Open("pgx", fmt.Sprintf("%s user=%s dbname=%s", n.socket(), User, Database))
}

// OpenAs opens a pool on one node as the clients' role.
func (c *Cluster) OpenAs(n *Node) (*sql.DB, error) {
	return sql.Open("pgx", fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable connect_timeout=2", n.Host.IP, postgresPort, User, Database))
}

// Named returns a DSN whose sessions have a name that the observer sees.
func Named(dsn, name string) string { return dsn + " application_name=" + name }

// MultiHost is a DSN for both drivers that names all nodes, the first one
// first.
func (c *Cluster) MultiHost() string {
	var hosts []string
	for _, n := range c.Nodes {
		hosts = append(hosts, n.Host.IP)
	}
	return fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=disable target_session_attrs=read-write connect_timeout=1",
		strings.Join(hosts, ","), strings.TrimSuffix(strings.Repeat(strconv.Itoa(postgresPort)+",", len(hosts)), ","), User, Database)
}

// Proxied is a DSN for both drivers that goes through HAProxy.
func Proxied() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=%s dbname=%s sslmode=disable connect_timeout=2", ProxyPort, User, Database)
}

// poll is fleet.Poll, and not as often.
func poll(ctx context.Context, d time.Duration, what string, done func(context.Context) bool) error {
	return fleet.Poll(ctx, d, what, func(ctx context.Context) (bool, error) {
		if done(ctx) {
			return true, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
		return false, nil
	})
}

// Version returns the versions of the servers.
func (c *Cluster) Version(ctx context.Context, n *Node) (string, error) {
	db, err := c.Open(n, "postgres")
	if err != nil {
		return "", err
	}
	var version string
	err = errors.Join(db.QueryRowContext(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&version), db.Close())
	patroni, err2 := exec.Command("patroni", "--version").Output()
	return "PostgreSQL " + version + ", " + strings.TrimSpace(string(patroni)), errors.Join(err, err2)
}
