package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// pgliteDir is the directory in the user's cache directory into which
// deps.sh puts PGlite and its socket server.
const pgliteDir = "pglite-0.5.16-0.2.17"

// PGlite starts PGlite, which is PostgreSQL compiled to WebAssembly, with its
// socket server. That serves so many clients with one server process. The
// caller must Close it.
func PGlite(clients int) (*Front, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("node: %w", ErrNotInstalled)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	server := filepath.Join(cache, "latchkey", pgliteDir, "node_modules", "@electric-sql", "pglite-socket", "dist", "scripts", "server.js")
	if _, err := os.Stat(server); err != nil {
		return nil, fmt.Errorf("PGlite: %w", ErrNotInstalled)
	}
	d, err := StartDaemon(Launch{
		Args: func(_, _ string, port int) []string {
			return []string{node, server, "--port=" + strconv.Itoa(port), "--max-connections=" + strconv.Itoa(clients)}
		},
		// A connection would take one of its places.
		Ready:      func(_, log string, _ int) bool { return strings.Contains(log, "listening on") },
		OwnAccount: true,
	})
	if err != nil {
		return nil, err
	}
	return &Front{d}, nil
}
