package main

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/bench/results"
)

// machine describes this one, without its name.
func machine() results.Machine {
	return results.Machine{
		CPU:    valueIn("/proc/cpuinfo", "model name"),
		Cores:  runtime.NumCPU(),
		Memory: memory(),
		OS:     operatingSystem(),
		Go:     runtime.Version(),
	}
}

// valueIn is the first value of a name in a file of lines "name : value", or
// empty.
func valueIn(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func memory() uint64 {
	kilobytes, _, _ := strings.Cut(valueIn("/proc/meminfo", "MemTotal"), " ")
	n, _ := strconv.ParseUint(kilobytes, 10, 64) // 0: unknown
	return n << 10
}

// operatingSystem is the system, and on Linux its kernel's version without what
// a builder has added to it.
func operatingSystem() string {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	version, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-")
	return strings.TrimSpace(runtime.GOOS + "/" + runtime.GOARCH + " " + version)
}

// moduleVersions are those of the contenders' modules.
func moduleVersions() map[string]string {
	versions := map[string]string{}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versions
	}
	for _, m := range info.Deps {
		switch m.Path {
		case "github.com/jackc/pgx/v5", "github.com/lib/pq", "github.com/redis/go-redis/v9", "github.com/redis/rueidis",
			"github.com/bsm/redislock", "github.com/go-redsync/redsync/v4", "google.golang.org/grpc":
			versions[m.Path] = m.Version
		}
	}
	return versions
}
