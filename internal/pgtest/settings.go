package pgtest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// An Option changes how Start starts a cluster.
type Option func(*Cluster)

// WithSettings sets settings of postgresql.conf, in addition to those that make
// a throwaway server quick. Values need no quotes.
func WithSettings(settings map[string]string) Option {
	return func(c *Cluster) { maps.Copy(c.settings, settings) }
}

// quickSettings suit a server whose data may be lost.
func quickSettings() map[string]string {
	return map[string]string{
		"fsync":              "off",
		"full_page_writes":   "off",
		"synchronous_commit": "off",
		"autovacuum":         "off",
		"jit":                "off",
		"shared_buffers":     "16MB",
		"max_connections":    "200",
		// A client on a busy machine may be late in its handshake.
		"authentication_timeout": "10min",
		// Tests that hold thousands of locks share a server.
		"max_locks_per_transaction": "256",
		"timezone":                  "UTC",
		"log_line_prefix":           "%m [%p] ",
		// The socket is in the data directory, since a killed server leaves it
		// behind.
		"dynamic_shared_memory_type": "mmap",
		// A standby that was stopped or frozen for a while can still catch up.
		"wal_keep_size": "64MB",
	}
}

// writeSettings writes the whole of postgresql.conf. The command line is no
// place for them: ALTER SYSTEM could not override them there.
func (c *Cluster) writeSettings() error {
	all := maps.Clone(c.settings)
	all["listen_addresses"] = "127.0.0.1"
	all["port"] = strconv.Itoa(c.port)
	all["unix_socket_directories"] = c.home.dir
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(all[name], "'", "''"))
	}
	return c.writeData("postgresql.conf", b.String())
}

// writeData writes a file in the data directory.
func (c *Cluster) writeData(name, content string) error {
	path := filepath.Join(c.data, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return err
	}
	return c.home.own(path)
}
