package main

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/latchkey-go/latchkey/internal/subprocess/programtest"
)

// Two instances admit each user's requests one at a time, on each place.
func TestDemo(t *testing.T) {
	eachPlace(t, places, func(t *testing.T, p place, databaseURL string) {
		demo := programtest.Command(t, "-load", "1s")
		demo.Env = append(demo.Env, "DATABASE_URL="+databaseURL)
		out := programtest.Output(t, demo)
		for _, pattern := range []string{
			`a process, share one ` + p.is + `\. `,
			`(?m)^USER +INSTANCE +ADMITTED +REJECTED$`,
			`(?m)^alice +1 +\d+ +\d+$`,
			`(?m)^dave +2 +\d+ +\d+$`,
			`(?m)^all +[1-9]\d* +\d+$`,
			`had at most [0-2] ` + p.session + `s of latchkey`,
			` 0 exports overlapped another`,
			`\(cd examples/quickstart && go run \. -serve\)\n$`,
		} {
			if !regexp.MustCompile(pattern).MatchString(out) {
				t.Errorf("no %s in\n%s", pattern, out)
			}
		}
	})
}

// A DATABASE_URL that is not understood is an error that does not show it.
func TestUnknownDatabase(t *testing.T) {
	for _, url := range []string{
		"secret", "redis://ann:secret@db.example/0", "mysql://ann:secret@db.example:port/shop",
		"mysql://ann@db.example/shop?parseTime=secret", "ann@tcp(db.example)/shop?parseTime=secret",
	} {
		demo := programtest.Command(t)
		demo.Env = append(demo.Env, "DATABASE_URL="+url)
		out, err := demo.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("postgres://")) || bytes.Contains(out, []byte("secret")) {
			t.Errorf("%s: it ends with %v\n%s", url, err, out)
		}
	}
}
