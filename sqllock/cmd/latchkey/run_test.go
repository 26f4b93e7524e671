//go:build linux

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
)

// addresses makes a database of each kind.
var addresses = map[string]func(t *testing.T) string{
	"PostgreSQL": func(t *testing.T) string { return pgtest.Database(t) },
	"MariaDB":    func(t *testing.T) string { return mariadbtest.Database(t) },
	"SQLite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "locks.db") },
}

// eachDatabase runs test on each kind of database.
func eachDatabase(t *testing.T, test func(t *testing.T, address string)) {
	t.Parallel()
	for name, address := range addresses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, address(t))
		})
	}
}

// A second command is rejected, waits, and runs when the first has ended.
func TestOneAtATime(t *testing.T) {
	eachDatabase(t, func(t *testing.T, address string) {
		file := filepath.Join(t.TempDir(), "work")
		first := start(t, address, append([]string{"run", "a:b"}, worker("stay", file)...)...)
		first.line()
		start(t, address, "run", "-n", "a:b", "true").wantCode(1)
		start(t, address, "run", "-n", "a:c", "true").wantCode(0)
		second := start(t, address, append([]string{"run", "a:b"}, worker("once", file)...)...)
		start(t, address, "run", "-w", "0.1", "a:b", "true").wantCode(1)
		_ = first.stdin.Close()
		first.wantCode(0)
		second.wantCode(0)
		if got, want := readWork(t, file), "begin end begin end"; got != want {
			t.Errorf("the commands wrote %q, want %q", got, want)
		}
	})
}

// The lock of a command is that of a service which names the key in the same way.
func TestSharesKeysWithServices(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	lock := dbtest.Lock(t, dbtest.Session(t, "pgx", address), sqllock.Namespace("export").Key("ada:1"))
	start(t, address, "run", "-n", "export:ada:1", "true").wantCode(1)
	number := start(t, "", "key", "-q", "export", "ada:1").line()
	start(t, address, "run", "-n", number, "true").wantCode(1)
	start(t, address, "run", "-n", "--at-most", "2", "export:ada:1", "true").wantCode(0)
	start(t, address, "ps", "export:ada:1").wantCode(0)
	dbtest.Unlock(t, lock)
	start(t, address, "run", "-n", "export:ada:1", "true").wantCode(0)
}

// Two of three commands run at once, in the slots of ratelimit.AtMost.
func TestAtMost(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	for range 2 {
		start(t, address, "run", "-n", "--at-most", "2", "a:b", "sh", "-c", "echo held; cat").wantLine("held")
	}
	start(t, address, "run", "-n", "--at-most", "2", "a:b", "true").wantCode(1)
	start(t, address, "run", "-n", "--at-most", "3", "a:b", "true").wantCode(0)
}

// Readers run together, and a writer runs alone.
func TestShared(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	start(t, address, "run", "-s", "a:b", "sh", "-c", "echo held; cat").wantLine("held")
	start(t, address, "run", "-s", "-n", "a:b", "sh", "-c", "echo ${LATCHKEY_TOKEN-none}").wantLine("none")
	start(t, address, "run", "-n", "a:b", "true").wantCode(1)
}

// The command gets the standard input, and its token is greater than that of the
// command before it. A token of an outer lock does not reach it.
func TestInputAndToken(t *testing.T) {
	eachDatabase(t, func(t *testing.T, address string) {
		last := ""
		for range 3 {
			p := start(t, address, "run", "a:b", "sh", "-c", `read line; echo "$line"; echo $LATCHKEY_TOKEN; env | grep ^LATCHKEY | grep -cv ^LATCHKEY_TEST_`)
			if _, err := p.stdin.Write([]byte("hello\n")); err != nil {
				t.Fatal(err)
			}
			p.wantLine("hello")
			token := p.line()
			if token <= last {
				t.Errorf("the token %q does not come after %q", token, last)
			}
			last = token
			p.wantLine("1")
			p.wantCode(0)
		}
	})
}

// Signals reach the command. Latchkey goes on until the command has ended.
func TestSignals(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	file := filepath.Join(t.TempDir(), "work")
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // under nohup the command would ignore it
	defer signal.Stop(hangups)
	p := start(t, address, append([]string{"run", "a:b"}, worker("signals", file)...)...)
	p.wantLine("ready")
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTERM} {
		if err := p.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		p.wantLine(s.String())
	}
	p.wantCode(7)
}

// A signal ends the wait for the lock.
func TestSignalWhileWaiting(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	start(t, address, "run", "a:b", "sh", "-c", "echo held; cat").wantLine("held")
	p := start(t, address, "run", "--verbose", "a:b", "true")
	db, err := openAddress(address, false)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	lockertest.Eventually(t, "two sessions", func() bool { return sessions(t, db) == 2 })
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.wantCode(128 + int(syscall.SIGTERM))
	lockertest.Eventually(t, "one session", func() bool { return sessions(t, db) == 1 })
}

// sessions counts the server processes with a lock of latchkey run, or that wait
// for one.
func sessions(t *testing.T, db *database) (n int) {
	t.Helper()
	const query = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE '%latchkey'`
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A signal that the caller ignores is ignored by the command, too.
func TestNohup(t *testing.T) {
	t.Parallel()
	p := startProgram(t, []string{databaseVariable + "=" + pgtest.Database(t)},
		"sh", "-c", `trap "" HUP; exec "$@"`, "sh", latchkeyPath, "run", "a:b", "sh", "-c", "echo $$; cat; echo end")
	p.line()
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	_ = p.stdin.Close()
	p.wantLine("end")
	p.wantCode(0)
}

func TestKey(t *testing.T) {
	t.Parallel()
	const want = "key       3173073593436799565\nclassid   738788767\nobjid     519635533\nobjsubid  1\n"
	if p := start(t, "", "key", "export", "ada"); p.rest() != want {
		t.Errorf("it printed %q, want %q", p.rest(), want)
	}
	slot := start(t, "", "key", "-q", "--slot", "3", "export", "ada").line()
	if want := keyText(sqllock.Namespace("export").SlotKey("ada", 3)); slot != want {
		t.Errorf("slot 3 is %s, want %s", slot, want)
	}
	start(t, "", "key", "export").wantCode(64)
	start(t, "", "key", "", "ada").wantCode(64)
	start(t, "", "key", "--slot", "-1", "export", "ada").wantCode(64)
}

// One newline at the end of an id does not count. All else does.
func TestIDFromInput(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"": "", "ada": "ada", "ada\n": "ada", "ada\r\n": "ada", "ada\r": "ada\r", "ada\n\n": "ada\n", "a\x00b\n": "a\x00b",
	} {
		if got := withoutNewline(input); got != want {
			t.Errorf("%q is the id %q, want %q", input, got, want)
		}
	}
	p := start(t, "", "key", "-q", "export", "-")
	_, _ = p.stdin.Write([]byte("ada\n"))
	_ = p.stdin.Close()
	if got, want := p.line(), keyText(sqllock.Namespace("export").Key("ada")); got != want {
		t.Errorf("the key is %s, want %s", got, want)
	}
}

func TestPs(t *testing.T) {
	eachDatabase(t, func(t *testing.T, address string) {
		key := keyText(sqllock.Namespace("a").Key("b"))
		start(t, address, "run", "a:c", "true").wantCode(0) // makes a file of SQLite
		start(t, address, "ps", "a:b").wantCode(1)
		start(t, address, "ps").wantCode(0)
		holder := start(t, address, "run", "a:b", "sh", "-c", "echo held; cat")
		holder.wantLine("held")
		if text := start(t, address, "ps").rest(); !strings.Contains(text, key) {
			t.Errorf("ps does not list the key %s: %s", key, text)
		}
		if text := start(t, address, "ps", "--json", "a:b").rest(); !strings.Contains(text, `"key":"`+key+`"`) {
			t.Errorf("ps --json does not list the key %s: %s", key, text)
		}
		start(t, address, "ps", "a:c").wantCode(1)
		start(t, address, "ps", "a:b").wantCode(0)
		watch := start(t, address, "ps", "--json", "--watch", "10ms", "a:b")
		for _, held := range []bool{true, false} {
			for strings.Contains(watch.line(), key) != held {
			}
			_ = holder.stdin.Close()
		}
		if err := watch.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = watch.rest()
		watch.wantCode(0)
	})
}

// The scripts for the shells name the subcommands.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		p := start(t, "", "completion", shell)
		if text := p.rest(); !strings.Contains(text, "latchkey") {
			t.Errorf("%s: it printed %q", shell, text)
		}
		p.wantCode(0)
	}
	p := start(t, "", "--generate-shell-completion")
	if text := p.rest(); !strings.Contains(text, "run") || !strings.Contains(text, "ps") {
		t.Errorf("the completion is %q", text)
	}
}

// Doctor prints its report, and its exit code is that of the worst check.
func TestDoctor(t *testing.T) {
	eachDatabase(t, func(t *testing.T, address string) {
		start(t, address, "run", "a:b", "true").wantCode(0) // makes a file of SQLite
		p := start(t, address, "doctor")
		if text := p.rest(); p.code() == 2 || !strings.Contains(text, "ok") {
			t.Errorf("exit code %d, and it printed %s", p.code(), text)
		}
		var report struct{ State, Dialect string }
		p = start(t, address, "doctor", "--json", "--instances", "2", "--locks", "10")
		if err := json.Unmarshal([]byte(p.rest()), &report); err != nil || report.State == "" || report.Dialect == "" {
			t.Errorf("the report has state %q and dialect %q: %v", report.State, report.Dialect, err)
		}
		start(t, address, "doctor", "--locks", "10").wantCode(64)
	})
}

// The page is on loopback. It ends with a signal, also while it is viewed. Its doctor
// and that of the command print the same words for a state.
func TestUI(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	start(t, address, "run", "a:b", "sh", "-c", "echo held; cat").wantLine("held")
	p := start(t, address, "ui", "--listen", "127.0.0.1:0", "--schema", "public", "--long-held", "1ms")
	url := p.line()
	number := keyText(sqllock.Namespace("a").Key("b"))
	for path, want := range map[string]string{"locks": number, "findings": "held for long"} {
		lockertest.Eventually(t, path+" shows "+want, func() bool {
			resp, err := http.Get(url + path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return err == nil && strings.Contains(string(body), want)
		})
	}
	var shown, printed struct{ Checks []lockdoctor.Result }
	resp, err := http.Post(url+"doctor?format=json", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&shown); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(start(t, address, "doctor", "--json").rest()), &printed); err != nil {
		t.Fatal(err)
	}
	skipped := func(checks []lockdoctor.Result) []lockdoctor.Result { // the others have figures of the moment
		return slices.DeleteFunc(checks, func(c lockdoctor.Result) bool { return c.State != lockdoctor.Skipped })
	}
	if page, report := skipped(shown.Checks), skipped(printed.Checks); len(page) == 0 || !slices.Equal(page, report) {
		t.Errorf("the page has %+v, the report has %+v", page, report)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	p.wantCode(0)
	for _, listen := range []string{"0.0.0.0:0", "[::]:0", ":0", "example.org:80", "127.0.0.1"} {
		start(t, address, "ui", "--listen", listen).wantCode(64)
	}
}
