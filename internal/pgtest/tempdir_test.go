package pgtest

import (
	"os"
	"path/filepath"
	"slices"
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
	tests := []struct {
		name, tmpdir string
		want         []string
	}{
		{"not set", "", []string{"/tmp", memoryDir}}, // by what is free in memory, which other programs change
		{"ordinary", open, []string{open}},
		{"too long for a socket", "/tmp/" + strings.Repeat("x", 80), []string{"/tmp"}},
		{"ours alone", closed, []string{reachable}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("TMPDIR", tt.tmpdir)
			if got := tempDir(); !slices.Contains(tt.want, got) {
				t.Errorf("got %s, want one of %q", got, tt.want)
			}
		})
	}
}
