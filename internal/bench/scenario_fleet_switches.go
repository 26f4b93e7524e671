package main

import (
	"bytes"
	"os"
	"strconv"
)

// contextSwitches is how often the machine has changed from one thread to
// another since it started; 0 where Linux's /proc does not say.
func contextSwitches() uint64 {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(stat) {
		if value, ok := bytes.CutPrefix(line, []byte("ctxt ")); ok {
			n, _ := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64) // 0 if it is no number
			return n
		}
	}
	return 0
}
