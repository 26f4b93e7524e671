package pgtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTempDir(t *testing.T) {
	open := filepath.Join("/tmp", "latchkey-temp-test")
	must(t, os.MkdirAll(open, 0o755))
	t.Cleanup(func() { os.RemoveAll(open) })
	closed := filepath.Join(open, "closed")
	must(t, os.Mkdir(closed, 0o700))
	reachable := closed
	if os.Geteuid() == 0 {
		reachable = "/tmp" // the server's account has no access to closed
	}
	tests := []struct{ name, tmpdir, want string }{
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

func TestRunError(t *testing.T) {
	t.Parallel()
	h, err := newHome()
	must(t, err)
	defer func() { must(t, h.remove()) }()
	err = h.run(startTimeout, "/bin/sh", "-c", "echo the reason; exit 3")
	if err == nil || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("the program's reason is not in: %v", err)
	}
	must(t, h.run(startTimeout, "/bin/sh", "-c", "exit 0"))
	if err := h.run(startTimeout, "/no/such/program"); err == nil {
		t.Error("no error without a program")
	}
}

func TestRunOutOfTime(t *testing.T) {
	t.Parallel()
	h, err := newHome()
	must(t, err)
	defer func() { must(t, h.remove()) }()
	if err := h.run(quiet, "/bin/sh", "-c", "exec sleep 60"); err == nil || !strings.Contains(err.Error(), "in vain") {
		t.Errorf("got %v, want an error that says it took too long", err)
	}
}
