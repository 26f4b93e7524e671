//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// shellBlock is a block of shell commands on a page. The comment above says that
// it is not run.
var shellBlock = regexp.MustCompile("(?ms)(^<!-- sh: not run -->\n)?^```sh\n(.*?)^```")

// Each shell block of docs/command.md runs as it is there.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/command.md")
	if err != nil {
		t.Fatal(err)
	}
	address := pgtest.Database(t)
	run := 0
	for _, block := range shellBlock.FindAllSubmatch(page, -1) {
		if len(block[1]) > 0 {
			continue
		}
		run++
		c := exec.Command("sh", "-eu", "-c", string(block[2]))
		c.Env = append(os.Environ(), databaseVariable+"="+address, "PATH="+filepath.Dir(latchkeyPath)+":"+os.Getenv("PATH"))
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v, and it printed %s, of the block\n%s", err, out, block[2])
		} else {
			t.Logf("%s%s", block[2], out)
		}
	}
	if run < 5 {
		t.Errorf("the page has %d blocks that run", run)
	}
}
