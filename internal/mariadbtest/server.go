package mariadbtest

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A Server is one MariaDB server with its data, which Close removes.
type Server struct {
	*pgtest.Daemon
	programs programs
	options  []string // of the next start
}

// Start starts a server with options of its own ("--read-only"). The caller
// must Close it. It needs MariaDB's programs, and returns ErrNoMariaDB without
// them.
func Start(options ...string) (*Server, error) {
	p, err := findPrograms()
	if err != nil {
		return nil, err
	}
	certificate, key, err := pgtest.SelfSigned()
	if err != nil {
		return nil, err
	}
	s := &Server{programs: p, options: options}
	s.Daemon, err = pgtest.StartDaemon(pgtest.Launch{
		Template: templateName(p),
		OnDisk:   true,
		Files: func(string, int) map[string][]byte {
			return map[string][]byte{"server.crt": certificate, "server.key": key}
		},
		InitArgs: func(data string) []string {
			return append(append([]string{p.install}, initOptions...), "--datadir="+data)
		},
		Args: func(dir, data string, port int) []string {
			args := append([]string{p.server}, quickOptions...)
			args = append(args, "--datadir="+data, "--tmpdir="+dir, "--socket="+socket(dir), "--pid-file="+filepath.Join(dir, "pid"),
				"--ssl-cert="+filepath.Join(dir, "server.crt"), "--ssl-key="+filepath.Join(dir, "server.key"),
				fmt.Sprintf("--port=%d", port))
			return append(args, s.options...)
		},
		Ready: func(dir, _ string, _ int) bool { return greets("unix", socket(dir)) },
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// smallFiles makes the files of a new server small, because they are copied for
// each server.
var smallFiles = []string{
	"--innodb-log-file-size=4M",
	"--innodb-data-file-path=ibdata1:4M:autoextend",
	"--aria-log-file-size=8M",
}

// initOptions are the options of mariadb-install-db. The superuser needs no
// password.
var initOptions = append([]string{
	"--no-defaults",
	"--auth-root-authentication-method=normal",
	"--skip-test-db",
}, smallFiles...)

// quickOptions suit a server whose data may be lost.
var quickOptions = append([]string{
	"--no-defaults",
	"--bind-address=127.0.0.1",
	"--skip-name-resolve",
	"--skip-log-bin",
	"--performance-schema=OFF",
	"--innodb-buffer-pool-size=64M", // with 8M, writers wait for the page cleaner, which looks once a second
	"--innodb-flush-log-at-trx-commit=2",
	"--innodb-doublewrite=OFF",
	"--innodb-use-native-aio=OFF",
	"--max-connections=300",
	"--connect-timeout=600", // a client on a busy machine may be late in its handshake
	"--default-time-zone=+00:00",
	"--plugin-load-add=metadata_lock_info", // information_schema.metadata_lock_info: who holds which lock
}, smallFiles...)

// templateName identifies a data directory. Another server version or other
// options have another name.
func templateName(p programs) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{p.version, p.server}, initOptions...), "\n")))
	return fmt.Sprintf("mariadb-%x", sum[:6])
}

func socket(dir string) string { return filepath.Join(dir, "sock") }

// greets reports whether a server begins its protocol. It does so once it
// accepts connections.
func greets(network, address string) bool {
	conn, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	var greeting [5]byte // length and number of a packet, and the protocol's version
	if conn.SetReadDeadline(time.Now().Add(time.Second)) != nil {
		return false
	}
	_, err = conn.Read(greeting[:])
	return err == nil && greeting[4] == 10
}

// DSN returns the DSN of a database for github.com/go-sql-driver/mysql, over
// TCP. An empty name means "mysql". The user is the superuser. The server takes
// TLS too ("?tls=skip-verify").
func (s *Server) DSN(database string) string { return s.DSNOf("root", database) }

// DSNOf is DSN for another user, which has no password.
func (s *Server) DSNOf(user, database string) string {
	if database == "" {
		database = "mysql"
	}
	return fmt.Sprintf("%s@tcp(127.0.0.1:%d)/%s", user, s.Port(), database)
}

// Execute runs statements as the superuser. Semicolons separate them.
func (s *Server) Execute(statements string) error {
	client := exec.Command(s.programs.client, "--no-defaults", "--socket="+socket(s.Dir()), "--user=root", "mysql") //nolint:gosec,noctx // one that we have found
	client.Stdin = strings.NewReader(statements)
	var said bytes.Buffer
	client.Stderr = &said
	if err := client.Run(); err != nil {
		return fmt.Errorf("mariadbtest: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}

// CreateDatabase creates a database with a random name and returns its name.
func (s *Server) CreateDatabase() (name string, err error) {
	name = "latchkey_" + strings.ToLower(rand.Text())
	return name, s.Execute("CREATE DATABASE " + name)
}
