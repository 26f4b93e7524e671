package mariadbtest

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// envOrphan makes the test binary start a server and wait to be killed; its value
// says what state the server is in by then.
const envOrphan = "LATCHKEY_MARIADBTEST_ORPHAN"

func startAndWaitForDeath() int {
	s, err := Start()
	if err == nil && os.Getenv(envOrphan) == "frozen" {
		err = s.Freeze()
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(s.Dir())
	select {}
}

// A server does not outlive the process that started it, nor do its files.
func TestParentIsKilled(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"running", "frozen"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			parent := exec.Command(os.Args[0])
			parent.Env = append(os.Environ(), envOrphan+"="+state)
			out, err := parent.StdoutPipe()
			must(t, err)
			must(t, parent.Start())
			line, err := bufio.NewReader(out).ReadString('\n')
			must(t, err)
			dir := strings.TrimSpace(line)
			if _, err := os.Stat(dir); err != nil {
				t.Fatalf("the child says %q: %v", dir, err)
			}
			must(t, parent.Process.Kill())
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
				time.Sleep(10 * time.Millisecond) // polling, not hoping
			}
			t.Logf("gone after %v", time.Since(began).Round(time.Millisecond))
		})
	}
}
