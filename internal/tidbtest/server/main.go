// Command server serves two TiDB servers on one store in memory, for tests. Each
// is a server of its own to its clients: what one has written the other reads,
// and only the store keeps their sessions apart.
//
//	server -ports 15001,15002 -control FILE
//
// FILE is a Unix socket. A connection to it sends one line and reads one, which
// is empty or an error:
//
//	stop N      ends server N, from 0 on, with its connections
//	start N     starts it again, on its port
//	STATEMENT   is any SQL statement
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/pingcap/tidb/pkg/config"
	"github.com/pingcap/tidb/pkg/domain"
	"github.com/pingcap/tidb/pkg/kv"
	"github.com/pingcap/tidb/pkg/server"
	"github.com/pingcap/tidb/pkg/session"
	"github.com/pingcap/tidb/pkg/store/mockstore"
	"github.com/pingcap/tidb/pkg/util/logutil"
)

func main() {
	ports := flag.String("ports", "", "of the servers, separated by a comma")
	control := flag.String("control", "", "the Unix socket that takes orders")
	flag.Parse()
	if err := run(strings.Split(*ports, ","), *control); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

// A cluster is servers with a store in common.
type cluster struct {
	store   kv.Storage
	domain  *domain.Domain
	ports   []uint
	servers []*server.Server // nil: stopped
}

func run(ports []string, control string) error {
	err := logutil.InitLogger(&logutil.LogConfig{Config: logutil.NewLogConfig("error", "text", "", "", logutil.EmptyFileLogConfig, false).Config})
	if err != nil {
		return err
	}
	config.UpdateGlobal(func(c *config.Config) {
		c.Host, c.Socket = "127.0.0.1", ""
		c.Status.ReportStatus = false
		c.Performance.ForceInitStats = false // Run would wait for them before it listens
	})
	if err := os.Setenv("TMPDIR", filepath.Dir(control)); err != nil { // the store leaves a directory if it is killed
		return err
	}
	c := new(cluster)
	if c.store, err = mockstore.NewMockStore(); err != nil {
		return err
	}
	session.DisableStats4Test()
	if c.domain, err = session.BootstrapSession(c.store); err != nil {
		return err
	}
	for _, text := range ports {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return err
		}
		c.ports, c.servers = append(c.ports, uint(port)), append(c.servers, nil)
		if err := c.start(len(c.servers) - 1); err != nil {
			return err
		}
	}
	orders, err := net.Listen("unix", control)
	if err != nil {
		return err
	}
	for {
		conn, err := orders.Accept()
		if err != nil {
			return err
		}
		c.serve(conn)
	}
}

// serve carries out the order of a connection.
func (c *cluster) serve(conn net.Conn) {
	defer conn.Close()
	order, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return
	}
	answer := ""
	if err := c.do(strings.TrimSpace(order)); err != nil {
		answer = strings.ReplaceAll(err.Error(), "\n", " ")
	}
	fmt.Fprintln(conn, answer)
}

// do carries out an order.
func (c *cluster) do(order string) error {
	verb, rest, _ := strings.Cut(order, " ")
	n, err := strconv.Atoi(rest)
	if err != nil || verb != "stop" && verb != "start" {
		return c.execute(order)
	}
	switch {
	case n < 0 || n >= len(c.servers):
		return fmt.Errorf("there is no server %d", n)
	case (verb == "stop") == (c.servers[n] == nil):
		return fmt.Errorf("server %d is there already", n)
	case verb == "stop":
		return c.stop(n)
	}
	return c.start(n)
}

// stop ends server n with its connections. A statement that it executes may end a
// moment later, and commit. TiDB has two methods that do not fit here:
// KillAllConnections deletes from a map that others may read, which ends the
// process now and then. Kill makes a session leave the locks of its transaction.
func (c *cluster) stop(n int) error {
	c.servers[n].Close()
	c.servers[n] = nil
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, file := range files {
		fd, err := strconv.Atoi(file.Name())
		if err != nil {
			return err
		}
		local, _ := syscall.Getsockname(fd) // nil if fd is no socket
		if address, ok := local.(*syscall.SockaddrInet4); ok && address.Port == int(c.ports[n]) {
			_ = syscall.Shutdown(fd, syscall.SHUT_RDWR) // the client may have ended it
		}
	}
	return nil
}

// execute runs a statement.
func (c *cluster) execute(statement string) error {
	s, err := session.CreateSession(c.store)
	if err != nil {
		return err
	}
	defer s.Close()
	results, err := s.Execute(context.Background(), statement)
	for _, r := range results {
		_ = r.Close()
	}
	return err
}

// start starts server n, which listens when start returns.
func (c *cluster) start(n int) error {
	config.UpdateGlobal(func(g *config.Config) { g.Port = c.ports[n] })
	server.RunInGoTest, server.RunInGoTestChan = true, make(chan struct{})
	s, err := server.NewServer(config.GetGlobalConfig(), server.NewTiDBDriver(c.store))
	if err != nil {
		return err
	}
	s.SetDomain(c.domain)
	c.domain.InfoSyncer().SetSessionManager(s)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(c.domain) }()
	select {
	case err := <-ended:
		return err
	case <-server.RunInGoTestChan:
		c.servers[n] = s
		return nil
	}
}
