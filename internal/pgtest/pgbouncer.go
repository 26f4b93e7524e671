package pgtest

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// A Bouncer is a PgBouncer in front of a Cluster. It is closed with the
// Cluster, if not before. Its methods may be called from several goroutines.
type Bouncer struct {
	*Daemon
	serverPort int
}

const bouncerFile = "pgbouncer.ini"

// PgBouncer starts a PgBouncer in front of c. The mode is "transaction",
// "session" or "statement". poolSize is the number of its connections to the
// server for each database. more are further lines of its pgbouncer.ini.
func (c *Cluster) PgBouncer(mode string, poolSize int, more ...string) (*Bouncer, error) {
	program := Find("pgbouncer")
	if program == "" {
		return nil, errNoPgBouncer
	}
	d, err := StartDaemon(Launch{
		Files: func(_ string, port int) map[string][]byte {
			return map[string][]byte{bouncerFile: bouncerSettings(port, c.port, mode, poolSize, more)}
		},
		Args: func(dir, _ string, _ int) []string { return []string{program, filepath.Join(dir, bouncerFile)} },
		// A connection would prove nothing: another process may have taken the
		// port. It prints this line after it listens.
		Ready: func(_, log string, _ int) bool { return strings.Contains(log, "process up:") },
	})
	if err != nil {
		return nil, err
	}
	return &Bouncer{d, c.port}, c.adopt(d.Close)
}

// bouncerSettings is the content of pgbouncer.ini.
func bouncerSettings(port, serverPort int, mode string, poolSize int, more []string) []byte {
	return fmt.Appendf(nil, `[databases]
* = host=127.0.0.1 port=%[1]d user=%[2]s
[pgbouncer]
pool_mode = %[3]s
default_pool_size = %[4]d
listen_addr = 127.0.0.1
unix_socket_dir =
auth_type = any
admin_users = %[2]s
max_client_conn = 2000
; lib/pq sends it at startup
ignore_startup_parameters = extra_float_digits
; after the server was away, ask again soon
server_login_retry = 0.1
listen_port = %[6]d
%[5]s
`, serverPort, superuser, mode, poolSize, strings.Join(more, "\n"), port)
}

// Admin sends a command to PgBouncer's admin console, such as PAUSE. It returns
// when PgBouncer has carried it out.
func (b *Bouncer) Admin(ctx context.Context, command string) error {
	return execute(ctx, b.DSN("pgbouncer")+"&default_query_exec_mode=simple_protocol", command)
}

// Reload gives PgBouncer other settings, in the form of PgBouncer, while it
// serves its clients.
func (b *Bouncer) Reload(ctx context.Context, mode string, poolSize int, more ...string) error {
	if err := b.home.write(bouncerFile, bouncerSettings(b.port, b.serverPort, mode, poolSize, more)); err != nil {
		return err
	}
	return b.Admin(ctx, "RELOAD")
}

// DSN returns the URL of a database of the cluster, through b. An empty name
// means "postgres".
func (b *Bouncer) DSN(database string) string { return tcpDSN(b.port, database) }
