package languages

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A language is one in which the page has a program.
type language struct {
	name        string   // of its blocks
	file        string   // for the program
	programs    []string // interpreters, the first that has the library is used
	test        []string // arguments with which an interpreter succeeds if it has the library
	environment string   // where the interpreter looks for libraries, besides its own places
	cache       string   // the directory for it below the user's cache; deps.sh fills it
	lease       string   // how the program writes its lease of ten seconds
}

var languages = []language{
	{"python", "hold.py", []string{"python3", "/usr/bin/python3"}, []string{"-c", "import psycopg"}, "PYTHONPATH", "python-psycopg", "LEASE = 10 "},
	{"js", "hold.cjs", []string{"node"}, []string{"-e", `require("pg")`}, "NODE_PATH", "node-pg/node_modules", "LEASE = 10;"},
}

// Exit codes of the programs.
const (
	statusHeld = 1
	statusLost = 75
)

// eachLanguage runs test for each language whose interpreter and library are
// found.
func eachLanguage(t *testing.T, test func(t *testing.T, l language)) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			test(t, l)
		})
	}
}

// interpreters are the first program of each language that has its library, or
// "". To look for it takes as long as a test.
var interpreters = map[string]func() string{}

func init() {
	for _, l := range languages {
		interpreters[l.name] = sync.OnceValue(func() string {
			for _, program := range l.programs {
				if l.command(context.Background(), program, l.test).Run() == nil {
					return program
				}
			}
			return ""
		})
	}
}

// command returns the command that runs an interpreter of l with args.
func (l language) command(ctx context.Context, interpreter string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, interpreter, args...)
	if cache, err := os.UserCacheDir(); err == nil {
		cmd.Env = append(os.Environ(), l.environment+"="+filepath.Join(cache, "latchkey", l.cache))
	}
	return cmd
}

// source returns the page's code in l, with a lease of so many seconds.
func (l language) source(t *testing.T, lease string) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/other-languages.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for i, part := range strings.Split(string(page), "\n```") {
		if block, ok := strings.CutPrefix(part, l.name+"\n"); ok && i%2 == 1 {
			code.WriteString(block + "\n")
		}
	}
	short := strings.Replace(l.lease, "10", lease, 1)
	if strings.Count(code.String(), l.lease) != 1 {
		t.Fatalf("the page's %s has no line with %s", l.name, l.lease)
	}
	return strings.Replace(code.String(), l.lease, short, 1)
}

// A holder is a running program of the page.
type holder struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Scanner
	stderr bytes.Buffer
}

// start starts the page's program in l for the id, with a lease in seconds.
func (l language) start(t *testing.T, dsn, id, lease string) *holder {
	t.Helper()
	file := filepath.Join(t.TempDir(), l.file)
	if err := os.WriteFile(file, []byte(l.source(t, lease)), 0o600); err != nil {
		t.Fatal(err)
	}
	interpreter := interpreters[l.name]()
	if interpreter == "" {
		t.Skipf("the page's %s is not run here: none of %v has the library for PostgreSQL (make deps installs it)", l.name, l.programs)
	}
	h := &holder{cmd: l.command(t.Context(), interpreter, []string{file, dsn, namespace, id})}
	stdin, inErr := h.cmd.StdinPipe()
	stdout, outErr := h.cmd.StdoutPipe()
	h.cmd.Stderr = &h.stderr
	if err := errors.Join(inErr, outErr, h.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	h.stdin, h.stdout = stdin, bufio.NewScanner(stdout)
	t.Cleanup(func() {
		_ = pgtest.ThawProcess(h.cmd.Process.Pid)
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
	})
	return h
}

// holds checks that the program says that it holds the lock.
func (h *holder) holds(t *testing.T) {
	t.Helper()
	h.says(t, "held")
}

// says checks the next line of the program's output.
func (h *holder) says(t *testing.T, want string) {
	t.Helper()
	if !h.stdout.Scan() || h.stdout.Text() != want {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
		t.Fatalf("the program says %q, want %q; it ends with %v\n%s", h.stdout.Text(), want, h.cmd.ProcessState, h.stderr.String())
	}
}

// work gives the program a job.
func (h *holder) work(t *testing.T, job string) {
	t.Helper()
	if _, err := io.WriteString(h.stdin, job+"\n"); err != nil {
		t.Fatal(err)
	}
}

// ends waits for the program's end, and checks that it says nothing before and
// what its status is.
func (h *holder) ends(t *testing.T, status int, words ...string) {
	t.Helper()
	if h.stdout.Scan() {
		t.Errorf("the program says %q, want nothing", h.stdout.Text())
	}
	_ = h.cmd.Wait()
	said := h.stderr.String()
	if got := h.cmd.ProcessState.ExitCode(); got != status {
		t.Errorf("the program ends with %d, want %d\n%s", got, status, said)
	}
	if slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(said, word) }) {
		t.Errorf("the program does not say %q:\n%s", words, said)
	}
}

// deps.sh looks for the libraries where the tests do, and installs them there.
func TestDepsScript(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("deps.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range languages {
		for _, want := range []string{strings.Join(l.programs, " "), l.environment + "=$cache/" + l.cache, l.test[1]} {
			if !strings.Contains(string(script), want) {
				t.Errorf("deps.sh does not have %q", want)
			}
		}
	}
}
