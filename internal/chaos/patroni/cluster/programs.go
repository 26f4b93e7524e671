//go:build linux

// Package cluster is a PostgreSQL cluster under Patroni: on each node etcd,
// Patroni and PostgreSQL, and a HAProxy next to one client.
package cluster

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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
