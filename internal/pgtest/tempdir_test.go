package pgtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTempDir(t *testing.T) {
	open, err := os.MkdirTemp("/tmp", "latchkey-test-") //nolint:usetesting // t.TempDir's path is long
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(open) })
	must(t, os.Chmod(open, 0o755))
	closed := filepath.Join(open, "closed")
	must(t, os.Mkdir(closed, 0o700))
	reachable := closed
	if os.Geteuid() == 0 {
		reachable = "/tmp" // the server's account has no access to closed
	}
	unset := "/tmp"
	if freeBytes(memoryDir) >= enoughMemory {
		unset = memoryDir
	}
	tests := []struct{ name, tmpdir, want string }{
		{"not set", "", unset},
		{"ordinary", open, open},
		{"too long for a socket", "/tmp/" + strings.Repeat("x", 80), "/tmp"},
		{"ours alone", closed, reachable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("TMPDIR", tt.tmpdir)
			if got := tempDir(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestFreeBytes(t *testing.T) {
	if freeBytes("/tmp") == 0 {
		t.Error("nothing is free in /tmp")
	}
	if freeBytes("/no/such/directory") != 0 {
		t.Error("something is free nowhere")
	}
}
