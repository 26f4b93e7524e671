package pgtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// envOrphan makes the test binary start servers and wait to be killed; its value
// says what state they are in by then.
const envOrphan = "LATCHKEY_PGTEST_ORPHAN"

// startAndWaitForDeath starts one server of each kind, prints a line
// "directory pid" for each and "ready", and waits for ever.
func startAndWaitForDeath() int {
	if err := startEach(os.Getenv(envOrphan)); err != nil {
		fmt.Println(err)
		return 1
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

func TestParentIsKilled(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"running", "frozen", "killed"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			parent := exec.Command(os.Args[0])
			parent.Env = append(os.Environ(), envOrphan+"="+state)
			out, err := parent.StdoutPipe()
			must(t, err)
			must(t, parent.Start())
			dirs, pids := readServers(t, out)
			table, err := processes()
			must(t, err)
			for _, pid := range slices.Clone(pids) {
				for _, p := range table {
					if p.parent == pid {
						pids = append(pids, p.pid)
					}
				}
			}

			must(t, parent.Process.Kill())
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
func readServers(t *testing.T, out io.Reader) (dirs []string, pids []int) {
	t.Helper()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "ready" {
			return dirs, pids
		}
		dir, id, _ := strings.Cut(lines.Text(), " ")
		pid, err := strconv.Atoi(id)
		if err != nil {
			t.Fatalf("the child says %q", lines.Text())
		}
		dirs, pids = append(dirs, dir), append(pids, pid)
	}
	t.Fatal("the child said no more")
	return nil, nil
}
