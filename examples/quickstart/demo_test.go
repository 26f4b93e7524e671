package main

import (
	"bytes"
	"regexp"
	"testing"
)

func TestDemo(t *testing.T) {
	for _, place := range append([]place{throwaway}, given...) {
		t.Run(place.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			demo, tempDir := command(t, place.url(t), "-load", "2s")
			demo.Stdout, demo.Stderr = &stdout, &stderr
			if err := demo.Run(); err != nil {
				t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
			}
			if stderr.Len() > 0 {
				t.Errorf("it complains:\n%s", &stderr)
			}
			for _, pattern := range []string{
				`a process, share one ` + place.is + `\. `,
				`(?m)^USER +INSTANCE +ADMITTED +REJECTED$`,
				`(?m)^alice +1 +\d+ +\d+$`,
				`(?m)^alice +2 +\d+ +\d+$`,
				`(?m)^dave +2 +\d+ +\d+$`,
				`(?m)^all +[1-9]\d* +[1-9]\d*$`,
				`had at most 2 ` + place.session + `s of latchkey`,
				` 0 exports overlapped another`,
				`\(cd examples/quickstart && go run \. -serve\)\n$`,
			} {
				if !regexp.MustCompile(pattern).Match(stdout.Bytes()) {
					t.Errorf("no %s in\n%s", pattern, &stdout)
				}
			}
			leavesNothing(t, tempDir)
		})
	}
}

func TestUnknownDatabase(t *testing.T) {
	demo, tempDir := command(t, "redis://ann:secret@db.example/0")
	out, err := demo.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("postgres://")) || bytes.Contains(out, []byte("secret")) {
		t.Errorf("it ends with %v\n%s", err, out)
	}
	leavesNothing(t, tempDir)
}
