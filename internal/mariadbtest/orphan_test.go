package mariadbtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// orphanRole makes the test binary start a server and wait to be killed. Its
// orders name the state in which the server is by then.
const orphanRole = "parent of a server"

func startAndWaitForDeath(_ context.Context, state string) error {
	s, err := Start()
	if err == nil && state == "frozen" {
		err = s.Freeze()
	}
	if err != nil {
		return err
	}
	fmt.Println(s.Dir())
	select {}
}

// A server does not outlive the process that started it, nor do its files.
func TestLongParentIsKilled(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"running", "frozen"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			parent, err := subprocess.Start(orphanRole, state)
			must(t, err)
			defer func() { must(t, parent.Kill()) }()
			dir, err := parent.ReadLine()
			must(t, err)
			if _, err := os.Stat(dir); err != nil {
				t.Fatalf("the child says %q: %v", dir, err)
			}
			must(t, parent.Kill())
			if err := parent.Wait(); err == nil {
				t.Fatal("the parent ended by itself")
			}
			began := time.Now()
			for {
				if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
					break
				}
				if time.Since(began) > time.Minute {
					t.Fatal("the directory is there after a minute")
				}
				time.Sleep(10 * time.Millisecond)
			}
			t.Logf("gone after %v", time.Since(began).Round(time.Millisecond))
		})
	}
}
