package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A procEntry is one row of the process table.
type procEntry struct {
	pid, parent int
	state       string // as ps prints it; the first letter counts
}

func (p procEntry) zombie() bool  { return strings.HasPrefix(p.state, "Z") }
func (p procEntry) stopped() bool { return strings.HasPrefix(p.state, "T") }

// processes returns the machine's processes by id. It reads /proc where that
// exists (Linux), and runs ps elsewhere (macOS).
func processes() (map[int]procEntry, error) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	if len(stats) == 0 {
		return processesFromPS()
	}
	table := make(map[int]procEntry, len(stats))
	for _, path := range stats {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		if p, err := parseStat(string(line)); err == nil {
			table[p.pid] = p
		}
	}
	return table, nil
}

// parseStat reads "pid (name) state parent …". The name may contain any
// character.
func parseStat(line string) (p procEntry, err error) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return p, fmt.Errorf("pgtest: strange line in /proc: %q", line)
	}
	_, err = fmt.Sscan(line[:open]+line[end+1:], &p.pid, &p.state, &p.parent)
	return p, err
}

func processesFromPS() (map[int]procEntry, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "stat=").Output()
	if err != nil {
		return nil, fmt.Errorf("pgtest: ps: %w", err)
	}
	table := make(map[int]procEntry)
	for line := range strings.Lines(string(out)) {
		var p procEntry
		if _, err := fmt.Sscan(line, &p.pid, &p.parent, &p.state); err != nil {
			return nil, fmt.Errorf("pgtest: strange line from ps: %q", line)
		}
		table[p.pid] = p
	}
	return table, nil
}

// childrenOf returns the ids of a process's children that have not ended.
func childrenOf(parent int) ([]int, error) {
	table, err := processes()
	if err != nil {
		return nil, err
	}
	var pids []int
	for pid, p := range table {
		if p.parent == parent && !p.zombie() {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
