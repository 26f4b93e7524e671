package browser_test

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
)

// envRequired makes a missing program a failure. make browser sets it.
const envRequired = "LATCHKEY_TEST_BROWSER"

//go:embed deps.sh
var depsScript string

// The places of Chromium. deps.sh has the same list.
var chromiumPlaces = []string{
	"chromium", "chromium-browser", "google-chrome-stable", "google-chrome",
	"/Applications/Chromium.app/Contents/MacOS/Chromium",
	"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
}

// programs are what these tests need besides PostgreSQL.
type programs struct {
	chromium string // the path of the program
	axe      string // the source of axe-core
}

var findPrograms = sync.OnceValues(func() (p programs, err error) {
	for _, place := range chromiumPlaces {
		if p.chromium, err = exec.LookPath(place); err == nil {
			break
		}
	}
	if err != nil {
		return p, fmt.Errorf("Chromium is not installed")
	}
	version := regexp.MustCompile(`(?m)^axe=(\S+)`).FindStringSubmatch(depsScript)
	cache, err := os.UserCacheDir()
	if err != nil {
		return p, err
	}
	source, err := os.ReadFile(filepath.Join(cache, "latchkey", "axe-core-"+version[1], "axe.min.js"))
	if err != nil {
		return p, fmt.Errorf("axe-core is not in the cache directory")
	}
	p.axe = string(source)
	return p, nil
})

// needPrograms returns the programs. Without them it skips the test, or fails it
// if they are required.
func needPrograms(t *testing.T) programs {
	t.Helper()
	p, err := findPrograms()
	switch {
	case err == nil:
		return p
	case os.Getenv(envRequired) != "":
		t.Fatalf("%v, although %s is set", err, envRequired)
	default:
		t.Skipf("%v: make browser installs what is missing, and runs this test", err)
	}
	return p
}
