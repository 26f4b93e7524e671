//go:build linux

// Package cluster is a PostgreSQL cluster under Patroni: on each node etcd,
// Patroni and PostgreSQL, and a HAProxy next to one client.
package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// A requirement is a program and the Debian package that brings it.
type requirement struct{ program, debian string }

var requirements = []requirement{
	{"patroni", "patroni"}, {"etcd", "etcd-server"}, {"haproxy", "haproxy"}, {"ip", "iproute2"}, {"nsenter", "util-linux"},
}

// postgresGlob is where Debian has PostgreSQL's programs.
const postgresGlob = "/usr/lib/postgresql/*/bin"

// Check reports, in one line, what this machine lacks.
func Check() error {
	if os.Geteuid() != 0 {
		return errors.New("this needs root on Linux, for network namespaces of its own")
	}
	_, err := postgresDir(postgresGlob)
	return missing(exec.LookPath, err == nil)
}

// missing returns an error that names the packages to install.
func missing(look func(string) (string, error), postgres bool) error {
	packages := ""
	for _, r := range requirements {
		if _, err := look(r.program); err != nil {
			packages += " " + r.debian
		}
	}
	if !postgres {
		packages += " postgresql"
	}
	if packages == "" {
		return nil
	}
	return errors.New("programs are missing: apt-get install --no-install-recommends" + packages)
}

// postgresDir returns the directory with the programs of the newest PostgreSQL.
func postgresDir(glob string) (string, error) {
	dirs, err := filepath.Glob(glob)
	if err != nil {
		return "", err
	}
	newest, dir := 0, ""
	for _, d := range dirs {
		if major, err := strconv.Atoi(filepath.Base(filepath.Dir(d))); err == nil && major > newest {
			newest, dir = major, d
		}
	}
	if dir == "" {
		return "", fmt.Errorf("cluster: no PostgreSQL in %s", glob)
	}
	return dir, nil
}

// account returns the ordinary account that the servers run under.
func account() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
	}
	return nil, errors.New("cluster: there is no user postgres or nobody")
}
