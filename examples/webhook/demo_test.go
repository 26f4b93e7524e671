package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// The whole demonstration: two receivers, both killed once, and duplicates at once
// to both.
func TestDemo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		url  func(t *testing.T) string
		args []string
		busy bool // some are rejected with 409
	}{
		{"rejecting, throwaway database", func(*testing.T) string { return "" }, nil, true},
		{"waiting", func(t *testing.T) string { return pgtest.Database(t) }, []string{"-wait", "60s"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			demo := command(t, tt.url(t), tt.args...)
			demo.Stdout, demo.Stderr = &stdout, &stderr
			if err := demo.Run(); err != nil {
				t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
			}
			if busy := regexp.MustCompile(`(?m)^\d+ +409 `).Match(stdout.Bytes()); busy != tt.busy {
				t.Errorf("409 was a response: %v, want %v\n%s", busy, tt.busy, &stdout)
			}
			for _, pattern := range []string{
				`kills itself after COMMIT`, `kills itself before COMMIT`,
				`(?m)^1 +422 `, `(?m)^1 +401 `, `(?m)^\d+ +200, replayed `,
				`200 events sent in \d+ deliveries; 200 effects, 0 of them repeated`,
				`exactly once`,
			} {
				if !regexp.MustCompile(pattern).Match(stdout.Bytes()) {
					t.Errorf("no %s in\n%s", pattern, &stdout)
				}
			}
			if !strings.Contains(stderr.String(), "another payload") {
				t.Errorf("the log does not report an event with two payloads:\n%s", &stderr)
			}
			if regexp.MustCompile(`127\.0\.0\.1|postgres://|evt-`).Match(stderr.Bytes()) {
				t.Errorf("a host or an event's id is in the log:\n%s", &stderr)
			}
		})
	}
}

// The database is killed in the middle, and is back only when receivers have
// responded that they cannot work: nothing is lost, nothing done twice.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"synchronous_commit": "on"}))
	var stderr bytes.Buffer
	demo := command(t, cluster.DSN(""), "-events", "400")
	demo.Stderr = &stderr
	stdout, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	all, killed := followDemo(t, stdout, cluster)
	if err := demo.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, all, &stderr)
	}
	if !killed || !strings.Contains(all, "400 effects, 0 of them repeated") || !regexp.MustCompile(`(?m)^\d+ +503 `).MatchString(all) {
		t.Errorf("the database was killed: %v\n%s", killed, all)
	}
	if !strings.Contains(stderr.String(), "the database does not respond") {
		t.Errorf("receivers do not say why:\n%s", &stderr)
	}
}

// outageEnv says how much longer the outage lasts: LATCHKEY_TEST_OUTAGE=10s.
const outageEnv = "LATCHKEY_TEST_OUTAGE"

// followDemo reads what the demonstration prints, kills the server in the middle,
// and starts it again when a receiver has responded that it cannot work.
func followDemo(t *testing.T, stdout io.Reader, cluster *pgtest.Cluster) (all string, killed bool) {
	t.Helper()
	var text strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		switch {
		case lines.Text() == "100 events begun":
			if err := cluster.Kill(); err != nil {
				t.Error(err)
			}
			killed = true
		case strings.Contains(lines.Text(), "cannot work now") && killed:
			if longer, err := time.ParseDuration(os.Getenv(outageEnv)); err == nil {
				time.Sleep(longer) // the outage lasts as long as the variable says
			}
			if err := cluster.StartAgain(); err != nil {
				t.Error(err)
			}
		}
	}
	return text.String(), killed
}

// A receiver without its tables does not start, and says what to do.
func TestSchemaMissing(t *testing.T) {
	t.Parallel()
	missing, elsewhere := pgtest.Database(t), pgtest.Database(t)
	do(t, elsewhere, "CREATE SCHEMA other")
	inOther := withSearchPath(elsewhere, "other")
	if out, err := command(t, inOther, "-migrate").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, tt := range map[string]struct {
		url string
		ok  bool
	}{
		"missing":              {missing, false},
		"in another schema":    {elsewhere, false},
		"in the search_path":   {inOther, true},
		"wrong search_path":    {withSearchPath(elsewhere, "nowhere"), false},
		"no database at all":   {"postgres://127.0.0.1:1/none", false},
		"not a database's url": {"redis://ann:secret@db.example/0", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := command(t, tt.url, "-receiver").CombinedOutput() // its input is empty: it ends as soon as it serves
			if (err == nil) != tt.ok || tt.ok != bytes.Contains(out, []byte(`"address"`)) {
				t.Errorf("it ends with %v\n%s", err, out)
			}
			hint := regexp.MustCompile(`-migrate.*search_path|does not respond|DATABASE_URL`)
			if !tt.ok && !hint.Match(out) || bytes.Contains(out, []byte("secret")) || bytes.Contains(out, []byte("postgres://postgres")) {
				t.Errorf("it says\n%s", out)
			}
		})
	}
}

func withSearchPath(url, path string) string {
	if strings.Contains(url, "?") {
		return url + "&search_path=" + path
	}
	return url + "?search_path=" + path
}
