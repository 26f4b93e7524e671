package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// orphanRole makes the test binary start servers and wait to be killed. Its
// orders name the state in which the servers are by then.
const orphanRole = "parent of servers"

// startAndWaitForDeath starts one server of each kind, prints a line
// "directory pid" for each and "ready", and waits for ever.
func startAndWaitForDeath(_ context.Context, state string) error {
	if err := startEach(state); err != nil {
		return err
	}
	fmt.Println("ready")
	select {}
}

func startEach(state string) error {
	c, err := Start()
	if err != nil {
		return err
	}
	standby, err := c.Standby()
	if err != nil {
		return err
	}
	bouncer, err := c.PgBouncer("session", 1)
	if err != nil {
		return err
	}
	fmt.Println(c.home.dir, c.server.pid)
	fmt.Println(standby.home.dir, standby.server.pid)
	fmt.Println(bouncer.home.dir, bouncer.server.pid)
	if state == "frozen" {
		return c.Freeze()
	}
	if state == "killed" {
		return c.Kill()
	}
	return nil
}

func TestLongParentIsKilled(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"running", "frozen", "killed"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			parent, err := subprocess.Start(orphanRole, state)
			must(t, err)
			defer func() { must(t, parent.Kill()) }()
			dirs, pids := readServers(t, parent)
			table, err := processes()
			must(t, err)
			for _, pid := range slices.Clone(pids) {
				for _, p := range table {
					if p.parent == pid {
						pids = append(pids, p.pid)
					}
				}
			}

			must(t, parent.Kill())
			begin := time.Now()
			if err := parent.Wait(); err == nil {
				t.Fatal("the parent ended by itself")
			}
			must(t, waitForEnd(pids))
			for _, dir := range dirs {
				must(t, poll(startTimeout, "the removal of "+dir, func() (bool, error) {
					_, err := os.Stat(dir)
					return errors.Is(err, fs.ErrNotExist), nil
				}))
			}
			t.Logf("%d processes and %d directories gone after %v", len(pids), len(dirs), time.Since(begin))
		})
	}
}

// readServers reads what startAndWaitForDeath prints.
func readServers(t *testing.T, parent *subprocess.Process) (dirs []string, pids []int) {
	t.Helper()
	for {
		line, err := parent.ReadLine()
		if err != nil {
			t.Fatalf("the child said %q, and no more: %v", line, err)
		}
		if line == "ready" {
			return dirs, pids
		}
		dir, id, _ := strings.Cut(line, " ")
		pid, err := strconv.Atoi(id)
		if err != nil {
			t.Fatalf("the child says %q", line)
		}
		dirs, pids = append(dirs, dir), append(pids, pid)
	}
}
