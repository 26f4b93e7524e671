package pgtest

import (
	"strings"
	"testing"
)

func TestRunError(t *testing.T) {
	t.Parallel()
	h, err := newHome(tempDir())
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
