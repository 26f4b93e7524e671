package pgtest

import (
	"os"
	"os/exec"
	"testing"
)

// Both ways to read the table of processes see the same process.
func TestProcesses(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func() (map[int]procEntry, error){
		"default": processes,
		"ps":      processesFromPS,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath("ps"); err != nil && name == "ps" {
				t.Log("no ps here; /proc is what counts")
				return
			}
			table, err := read()
			must(t, err)
			self := table[os.Getpid()]
			if self.pid != os.Getpid() || self.parent != os.Getppid() || self.stopped() || self.zombie() {
				t.Errorf("this process: %+v", self)
			}
		})
	}
}
