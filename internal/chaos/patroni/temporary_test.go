//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// holdTemporary is a process that makes a temporary directory, prints its name
// and waits.
func holdTemporary(ctx context.Context, _ struct{}) error {
	t, err := newTemporary()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(t.dir, "round-0001", "logs"), 0o700); err != nil {
		return err
	}
	fmt.Println(t.dir)
	<-ctx.Done()
	return nil
}

// A temporary directory does not outlive a process that is killed.
func TestLongTemporaryOfAKilledProcess(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	p, err := subprocess.Start("temporary", struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := p.ReadLine()
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	lockertest.Eventually(t, "the directory is gone", func() bool {
		_, err := os.Stat(dir)
		return errors.Is(err, fs.ErrNotExist)
	})
}

func TestTemporary(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, kept := range []bool{false, true} {
		tmp, err := newTemporary()
		if err != nil {
			t.Fatal(err)
		}
		end := tmp.remove
		if kept {
			end = tmp.keep
		}
		if err := end(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(tmp.dir); (err == nil) != kept {
			t.Errorf("kept %t, and then: %v", kept, err)
		}
	}
}
