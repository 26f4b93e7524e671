package lockdoctor_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
)

func TestReport(t *testing.T) {
	ok := lockdoctor.Result{Name: "version", State: lockdoctor.OK, Reason: "PostgreSQL 15.18"}
	skipped := lockdoctor.Result{Name: "socket", State: lockdoctor.Skipped, Reason: "no Session"}
	warning := lockdoctor.Result{Name: "lock-table", State: lockdoctor.Warning, Reason: "half full", Fix: "Raise it.\nRestart."}
	wrong := lockdoctor.Result{Name: "pool", State: lockdoctor.Error, Reason: "too small", Fix: "Call it."}
	for _, tt := range []struct {
		name  string
		of    []lockdoctor.Result
		worst lockdoctor.State
		code  int
		text  string
	}{
		{"nothing", nil, lockdoctor.OK, 0, "\nok: 0 ok, 0 skipped, 0 warning, 0 error\n"},
		{"fine", []lockdoctor.Result{ok, skipped}, lockdoctor.OK, 0, "" +
			"ok       version  PostgreSQL 15.18\n" +
			"skipped  socket   no Session\n" +
			"\nok: 1 ok, 1 skipped, 0 warning, 0 error\n"},
		{"a warning", []lockdoctor.Result{warning}, lockdoctor.Warning, 1, "" +
			"warning  lock-table  half full\n" +
			"                     Raise it.\n" +
			"                     Restart.\n" +
			"\nwarning: 0 ok, 0 skipped, 1 warning, 0 error\n"},
		{"an error", []lockdoctor.Result{wrong, warning, ok}, lockdoctor.Error, 2, "" +
			"error    pool        too small\n" +
			"                     Call it.\n" +
			"warning  lock-table  half full\n" +
			"                     Raise it.\n" +
			"                     Restart.\n" +
			"ok       version     PostgreSQL 15.18\n" +
			"\nerror: 1 ok, 0 skipped, 1 warning, 1 error\n"},
	} {
		r := &lockdoctor.Report{Checks: tt.of}
		if r.Worst() != tt.worst || r.ExitCode() != tt.code || r.String() != tt.text {
			t.Errorf("%s: %s, exit code %d:\n%s\nwant %s, %d:\n%s", tt.name, r.Worst(), r.ExitCode(), r, tt.worst, tt.code, tt.text)
		}
	}
}

func TestReportJSON(t *testing.T) {
	r := &lockdoctor.Report{At: time.Unix(0, 0).UTC(), Dialect: sqllock.MySQL, Checks: []lockdoctor.Result{
		{Name: "pool", State: lockdoctor.Error, Reason: "too small", Fix: "Call it."},
		{Name: "version", State: lockdoctor.OK, Reason: "new"},
	}}
	got, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"at":"1970-01-01T00:00:00Z","dialect":"mysql","state":"error","checks":[` +
		`{"name":"pool","state":"error","reason":"too small","fix":"Call it."},{"name":"version","state":"ok","reason":"new"}]}`
	if string(got) != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if c, ok := r.Find("version"); !ok || c.Reason != "new" {
		t.Errorf("Find: %+v, %v", c, ok)
	}
	if c, ok := r.Find("nothing"); ok || c != (lockdoctor.Result{}) {
		t.Errorf("Find of a check that was not made: %+v, %v", c, ok)
	}
}

// Misuse panics where it is written.
func TestMisuse(t *testing.T) {
	for _, misuse := range []func(){
		func() { _, _ = lockdoctor.Check(t.Context(), nil) },
		func() { lockdoctor.WithSession(nil) },
		func() { lockdoctor.WithSchema("") },
		func() { lockdoctor.WithFleet(0, 1) },
		func() { lockdoctor.WithFleet(1, -1) },
		func() { lockdoctor.WithKeyedNamespace(sqllock.KeyedNamespace{}) },
	} {
		httptesting.WantPanic(t, "lockdoctor", "", misuse)
	}
}
