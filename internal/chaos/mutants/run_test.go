package mutants

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// await polls for a file.
func await(t *testing.T, name string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(name); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("there is no %s", filepath.Base(name))
		}
	}
}

// What a program runs is asked to end with it, and can.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := run(ctx, dir, "sh", "-c", `
			(trap 'touch asked; exit' TERM; touch begun; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1; done) &
			wait`)
		ended <- err
	}()
	await(t, filepath.Join(dir, "begun"))
	cancel()
	if err := <-ended; err == nil {
		t.Error("a program that was broken off has ended well")
	}
	await(t, filepath.Join(dir, "asked"))
}
