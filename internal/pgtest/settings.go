package pgtest

import (
	"bytes"
	"fmt"
	"maps"
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

// settingsFile is the whole of postgresql.conf. The command line is no place for
// settings: ALTER SYSTEM could not override them there.
func (c *Cluster) settingsFile(dir string, port int) []byte {
	all := maps.Clone(c.settings)
	all["listen_addresses"] = "127.0.0.1"
	all["port"] = strconv.Itoa(port)
	all["unix_socket_directories"] = dir
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(all[name], "'", "''"))
	}
	return b.Bytes()
}
