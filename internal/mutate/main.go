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

// tests are the sets for each package. They run in this order until a test
// fails.
var tests = map[string][]set{
	"internal/keytable":  {{pkg: "internal/keytable"}, simulation},
	"internal/session":   {{pkg: "internal/session"}, simulation, inSession},
	"internal/dialect":   {{pkg: "internal/dialect"}, simulation, {pkg: "internal/dialect/postgres"}, sqlite},
	"ratelimit":          {{pkg: "ratelimit", skip: "^(TestBurst|TestFairnessOnASession)$"}},
	"httpmw":             {{pkg: "httpmw"}, {module: "internal/simulation", run: "^TestResponse"}},
	"httpmw/idempotency": {{pkg: "httpmw/idempotency"}, {module: "internal/databases", run: "^TestIdempotency"}},
	"grpcmw":             {{pkg: "grpcmw"}},
	"sqllock":            {simulation, {pkg: "sqllock"}, restarts},
}

var (
	simulation = set{module: "internal/simulation", flags: []string{"-rapid.checks=100"}} // a hundred plans of each profile take two seconds
	inSession  = set{pkg: "sqllock", run: "^(TestRegistry(IsWritten|Misuse|NeverCostsALock)|TestHeldForInTheRegistry|TestOpenWhileDatabaseIsDown|TestTerminatedBackend|TestWatchedAfterFence|TestAnotherSecret)$"}
	restarts   = set{module: "internal/databases", run: "^(TestLeaseTableFence|TestLongLeaseTableServerRestarts)$"}
	sqlite     = set{module: "internal/databases", run: "SQLite|TablesOf", sub: "SQLite"}
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
	rootVariable   = "LATCHKEY_MUTATE_ROOT" // the tree without a mutant
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
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	report := filepath.Join(dir, "report.json")
	args := append([]string{"unleash", "--workers=3", "--timeout-coefficient=100", "--output=" + report, "--exclude-files=/"}, mutants...)
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
	c.Env = append(os.Environ(), folderVariable+"="+folder, rootVariable+"="+root, pathVariable+"="+path, "PATH="+dir+string(os.PathListSeparator)+path,
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
	if args[0] != "test" {
		return 0 // go mod download
	}
	for i, arg := range args {
		if arg != "-coverprofile" {
			continue
		}
		profile, err := cover(folder)
		if err == nil {
			err = os.WriteFile(args[i+1], []byte(profile), 0o600)
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		return 0
	}
	status, err := try(folder)
	if err != nil {
		_ = os.WriteFile(filepath.Join(os.TempDir(), notRun), []byte(err.Error()), 0o600)
	}
	return status
}

// compileError matches what the compiler says of a mutant, and no other reason
// for which a build fails.
var compileError = regexp.MustCompile(`(?m)^[^\s:]+\.go:\d+:\d+: [\s\S]*\[build failed\]`)

// try runs the tests that cover the mutant in the current directory. It returns
// what go test would: 0 if all pass, 1 if one fails, 2 if nothing compiles. An
// error says that a test did not run.
func try(folder string) (status int, err error) {
	name, line, err := changedLine(filepath.Join(os.Getenv(rootVariable), folder))
	if err != nil {
		return 1, err
	}
	if err := os.Chdir(strings.Repeat("../", 1+strings.Count(folder, "/"))); err != nil {
		return 1, err
	}
	for i, s := range tests[folder] {
		names, took, err := covering(i, folder+"/"+name, line)
		if err != nil {
			return 1, err
		}
		if len(names) == 0 {
			continue
		}
		limit := max(5*took, 10*time.Second) // a mutant may wait for ever
		args := append([]string{"test", "-count=1", "-vet=off", "-ldflags=-w", "-failfast", "-timeout=" + limit.String(),
			"-run=" + s.pattern(names...), "./" + s.pkg}, s.flags...)
		c := limited(goProgram(), args...)
		c.Dir = s.module
		out, err := c.CombinedOutput()
		switch {
		case err == nil:
		case compileError.Match(out):
			return 2, nil // not viable
		case bytes.Contains(out, []byte("FAIL")) && !bytes.Contains(out, []byte("[build failed]")):
			return 1, nil // killed
		default:
			return 1, fmt.Errorf("%w\n%s", err, out)
		}
	}
	return 0, nil
}

// limited is a command whose processes each have a bound of memory and one of
// processor time. A busy machine does not use up the latter.
func limited(name string, args ...string) *exec.Cmd {
	return exec.Command("sh", append([]string{"-c", `ulimit -t 60; ulimit -v 8000000; exec "$0" "$@"`, name}, args...)...)
}

// goProgram is the go command that the Makefile uses.
func goProgram() string {
	if name := strings.TrimSpace(os.Getenv("GO")); name != "" {
		return name
	}
	return "go"
}
