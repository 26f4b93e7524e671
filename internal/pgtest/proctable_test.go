package pgtest

import (
	"os"
	"os/exec"
	"testing"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	tests := []struct {
		line string
		want procEntry
		ok   bool
	}{
		{"12 (postgres) S 1 12 12 0", procEntry{12, 1, "S"}, true},
		{"12 (a) b) (c) T 7 12 12 0", procEntry{12, 7, "T"}, true},
		{"12 (x y) Z 7 0", procEntry{12, 7, "Z"}, true},
		{"12 postgres S 1", procEntry{}, false},
		{"(x) S", procEntry{}, false},
		{"", procEntry{}, false},
	}
	for _, tt := range tests {
		got, err := parseStat(tt.line)
		if (err == nil) != tt.ok || tt.ok && got != tt.want {
			t.Errorf("parseStat(%q) = %+v, %v; want %+v, ok %v", tt.line, got, err, tt.want, tt.ok)
		}
	}
}

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
