package main

import (
	"bytes"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/examples/internal/fleet"
	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/leaktest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	os.Exit(leaktest.Check(m.Run()))
}

// Two instances admit each user's requests one at a time.
func TestDemo(t *testing.T) {
	t.Setenv("DATABASE_URL", "")
	var out bytes.Buffer
	if err := demonstrate(t.Context(), t.TempDir(), time.Second, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, pattern := range []string{
		`a process, share one SQLite file\. `,
		`(?m)^USER +INSTANCE +ADMITTED +REJECTED$`,
		`(?m)^alice +1 +\d+ +\d+$`,
		`(?m)^dave +2 +\d+ +\d+$`,
		`(?m)^all +[1-9]\d* +\d+$`,
		`had at most [0-2] connections `,
		` 0 exports overlapped another`,
		`(?m)^OK: `,
	} {
		if !regexp.MustCompile(pattern).Match(out.Bytes()) {
			t.Errorf("no %s in\n%s", pattern, &out)
		}
	}
}

// The account is an error if a user had two exports at once, or none ran.
func TestReport(t *testing.T) {
	at := func(user string, from, to int64) fleet.Work {
		return fleet.Work{Key: user, Instance: 1, From: time.Unix(from, 0), To: time.Unix(to, 0)}
	}
	for name, tt := range map[string]struct {
		works []fleet.Work
		bad   bool
	}{
		"one after the other": {[]fleet.Work{at("alice", 2, 3), at("alice", 0, 2)}, false},
		"of two users":        {[]fleet.Work{at("alice", 0, 2), at("bob", 1, 3)}, false},
		"at once":             {[]fleet.Work{at("alice", 0, 2), at("bob", 0, 1), at("alice", 1, 3)}, true},
		"inside a long one":   {[]fleet.Work{at("alice", 0, 9), at("alice", 1, 2), at("alice", 3, 4)}, true},
		"none":                {nil, true},
	} {
		if err := report(new(bytes.Buffer), &load{works: tt.works}); (err != nil) != tt.bad {
			t.Errorf("%s: %v", name, err)
		}
	}
}
