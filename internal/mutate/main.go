// Command mutate runs a mutation tester on one package. It changes one token of
// the package at a time, and a test must fail:
//
//	go run -C internal/mutate . -tool github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0 ratelimit
//
// The tool finds the mutants in covered code, and plants each in a copy of the
// tree. Then it calls go test, and gets this program in place of the go command.
// There are three reasons for that:
//
//   - Tests of other packages cover a package, too.
//   - A mutant that does not compile is not caught.
//   - A mutant may loop for ever, or fill the memory.
//
// The exit status is 1 if less than 85 % of the mutants are caught, or if one
// survives that survivors.txt does not have.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	if folder, standIn := os.LookupEnv(folderVariable); standIn {
		os.Exit(goCommand(folder, os.Args[1:]))
	}
	tool := flag.String("tool", "", "the mutation tester, for go run")
	files := flag.String("files", "", "a regular expression for the names of files")
	flag.Parse()
	if err := os.Chdir("../.."); err != nil {
		fmt.Println("mutate:", err)
		os.Exit(1)
	}
	if err := mutate(*tool, filepath.Clean(flag.Arg(0)), *files); err != nil {
		fmt.Println("mutate:", err)
		os.Exit(1)
	}
}

// tests are the arguments of go test for each package, after a folder if that is
// a module of its own. They run in this order until a test fails.
var tests = map[string][]string{
	"internal/keytable":  {"./internal/keytable", simulation},
	"internal/session":   {"./internal/session", simulation, postgres},
	"internal/dialect":   {"./internal/dialect", simulation, "./internal/dialect/postgres", sqlite},
	"ratelimit":          {"./ratelimit -skip=^(TestLong|TestBurst|TestFairnessOnASession)"},
	"httpmw":             {"./httpmw"},
	"httpmw/idempotency": {"./httpmw/idempotency"},
	"grpcmw":             {"./grpcmw"},
	"sqllock":            {simulation, "./sqllock"},
}

const (
	simulation = "internal/simulation: . -rapid.checks=100" // a hundred plans of each profile take two seconds
	postgres   = "./sqllock -run=^(TestRegistry(IsWritten|Misuse|NeverCostsALock)|TestHeldForInTheRegistry|TestOpenWhileDatabaseIsDown|TestTerminatedBackend|TestWatchedAfterFence|TestAnotherSecret)$"
	sqlite     = "internal/databases: . -run=SQLite|TablesOf/SQLite"
)

// mutants are the kinds that are off by default. INVERT_NEGATIVES makes what
// ARITHMETIC_BASE makes, too.
var mutants = []string{
	"--invert-logical", "--invert-loopctrl", "--invert-assignments", "--invert-bitwise", "--invert-bwassign",
	"--remove-self-assignments", "--invert-negatives=false",
}

const (
	module = "github.com/latchkey-go/latchkey"

	folderVariable = "LATCHKEY_MUTATE"
	pathVariable   = "LATCHKEY_MUTATE_PATH" // PATH with the real go command

	notRun = "not-run" // the file in the tool's folder that says why a test did not run
)

// mutate runs the tool on the package in folder, and judges what it reports.
func mutate(tool, folder, files string) error {
	if tests[folder] == nil {
		return fmt.Errorf("no tests are known for %q", folder)
	}
	match, err := regexp.Compile(files)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	install := exec.Command(goProgram(), "install", tool) // go run would put the real go command in front
	install.Env = append(os.Environ(), "GOBIN="+dir)
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("go install %s: %w\n%s", tool, err, out)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Symlink(self, filepath.Join(dir, "go")); err != nil {
		return err
	}
	report := filepath.Join(dir, "report.json")
	args := append([]string{"unleash", "--workers=2", "--timeout-coefficient=100", "--output=" + report, "--exclude-files=/"}, mutants...)
	all, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return err
	}
	for _, f := range all {
		if name := filepath.Base(f); !match.MatchString(name) {
			args = append(args, "--exclude-files=^"+regexp.QuoteMeta(name)+"$")
		}
	}
	name, _, _ := strings.Cut(filepath.Base(tool), "@")
	c := exec.Command(filepath.Join(dir, name), append(args, folder)...)
	var log bytes.Buffer
	c.Stdout, c.Stderr = io.MultiWriter(os.Stdout, &log), os.Stderr
	path := os.Getenv("PATH")
	c.Env = append(os.Environ(), folderVariable+"="+folder, pathVariable+"="+path, "PATH="+dir+string(os.PathListSeparator)+path,
		"TMPDIR="+dir)
	if err := c.Run(); err != nil {
		return err
	}
	if text, err := os.ReadFile(filepath.Join(dir, notRun)); err == nil {
		return fmt.Errorf("a test did not run:\n%s", text)
	}
	if bytes.Contains(log.Bytes(), []byte("ERROR")) { // it leaves such a mutant out of the report
		return errors.New("the tool has failed for some mutants: see above")
	}
	return judge(folder, report, match)
}

// goCommand does in place of the go command what the tool asks for: it runs the
// tests for folder. It returns the exit status.
func goCommand(folder string, args []string) int {
	os.Setenv("PATH", os.Getenv(pathVariable))
	os.Unsetenv(folderVariable) // a test may run this program
	for i, arg := range args {
		if arg == "-coverprofile" {
			return cover(folder, args[i+1])
		}
	}
	if args[0] != "test" {
		return 0 // go mod download
	}
	if err := os.Chdir(strings.Repeat("../", 1+strings.Count(folder, "/"))); err != nil {
		return 3
	}
	for i, set := range tests[folder] {
		limit, err := os.ReadFile(limitFile(i))
		if err != nil {
			return 3
		}
		out, err := goTest(set, "-timeout="+string(limit), "-failfast")
		switch {
		case err == nil:
		case bytes.Contains(out, []byte("[build failed]")):
			return 2 // not viable
		case bytes.Contains(out, []byte("FAIL")):
			return 1 // killed
		default:
			_ = os.WriteFile(filepath.Join(os.TempDir(), notRun), out, 0o600)
			return 1
		}
	}
	return 0
}

// cover runs the tests of the unchanged package, and writes which code they
// cover.
func cover(folder, file string) int {
	profile := "mode: set\n"
	for i, set := range tests[folder] {
		began := time.Now()
		if out, err := goTest(set, "-coverpkg="+module+"/"+folder, "-coverprofile="+file); err != nil {
			fmt.Printf("\n%s", out)
			return 1
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return 1
		}
		_, blocks, _ := strings.Cut(string(text), "\n")
		profile += blocks
		limit := max(5*time.Since(began), 30*time.Second) // a mutant may wait for ever
		if err := os.WriteFile(limitFile(i), []byte(limit.String()), 0o600); err != nil {
			return 1
		}
	}
	conditions, err := cases(profile)
	if err == nil {
		err = os.WriteFile(file, []byte(profile+conditions), 0o600)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// limitFile has the time limit of a set of tests.
func limitFile(set int) string { return filepath.Join(os.TempDir(), fmt.Sprintf("limit-%d", set)) }

// goTest runs one set of tests, and returns its output. Each process has a bound
// of memory, and one of processor time, which a busy machine does not use up.
func goTest(set string, flags ...string) ([]byte, error) {
	dir, arguments, nested := strings.Cut(set, ": ")
	if !nested {
		dir, arguments = ".", set
	}
	args := append([]string{"-c", `ulimit -t 60; ulimit -v 8000000; exec "$0" "$@"`, goProgram(), "test", "-count=1", "-vet=off", "-ldflags=-w", "-skip=^TestLong"}, flags...)
	c := exec.Command("sh", append(args, strings.Fields(arguments)...)...)
	c.Dir = dir
	return c.CombinedOutput()
}

// goProgram is the go command that the Makefile uses.
func goProgram() string {
	if name := strings.TrimSpace(os.Getenv("GO")); name != "" {
		return name
	}
	return "go"
}
