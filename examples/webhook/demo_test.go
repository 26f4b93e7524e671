package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// The whole demonstration: two receivers, both killed once, and duplicates at once
// to both.
func TestDemo(t *testing.T) {
	t.Parallel()
	demonstrates(t, "", 60)
}

// Duplicates that wait get the first response, and no 409.
func TestLongDemoWaiting(t *testing.T) {
	t.Parallel()
	if out := demonstrates(t, pgtest.Database(t), 200, "-wait", "60s"); regexp.MustCompile(`(?m)^\d+ +409 `).MatchString(out) {
		t.Errorf("a duplicate was rejected:\n%s", out)
	}
}

// demonstrates runs the demonstration, and checks what it prints.
func demonstrates(t *testing.T, url string, events int, args ...string) string {
	t.Helper()
	var stdout, stderr strings.Builder
	demo := command(t, url, append(args, "-events", strconv.Itoa(events))...)
	demo.Stdout, demo.Stderr = &stdout, &stderr
	if err := demo.Run(); err != nil {
		if strings.Contains(stderr.String(), pgtest.ErrNoPostgres.Error()) {
			pgtest.Fatal(t, pgtest.ErrNoPostgres)
		}
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	for _, pattern := range []string{
		`kills itself after COMMIT`, `kills itself before COMMIT`,
		`(?m)^1 +422 `, `(?m)^1 +401 `, `(?m)^\d+ +200, replayed `,
		fmt.Sprintf(`%[1]d events sent in \d+ deliveries; %[1]d effects, 0 of them repeated`, events),
		`exactly once`,
	} {
		if !regexp.MustCompile(pattern).MatchString(stdout.String()) {
			t.Errorf("no %s in\n%s", pattern, &stdout)
		}
	}
	if !strings.Contains(stderr.String(), "another payload") {
		t.Errorf("the log does not report an event with two payloads:\n%s", &stderr)
	}
	if regexp.MustCompile(`127\.0\.0\.1|postgres://|evt-`).MatchString(stderr.String()) {
		t.Errorf("a host or an event's id is in the log:\n%s", &stderr)
	}
	return stdout.String()
}

// The database is killed in the middle, and is back only when receivers have
// responded that they cannot work: nothing is lost, nothing done twice.
func TestLongDatabaseAway(t *testing.T) {
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
	// A delivery may be rejected before it has its lock. Then the Session alone
	// says why. A receiver that has just been killed says it when it starts.
	if !regexp.MustCompile("connection lost|the database does not respond").MatchString(stderr.String()) {
		t.Errorf("receivers do not say why:\n%s", &stderr)
	}
}

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
	dbtest.Execute(t, pool(t, elsewhere), "CREATE SCHEMA other")
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
