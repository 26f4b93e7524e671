package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/fstest"
)

func TestUserModules(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{
		"go.mod": {}, "grpcmw/a.go": {}, "httpmw/a.go": {}, "internal/x/go.mod": {}, "examples/y/go.mod": {}, "docs/go.mod": {},
		"ratelimit/m/go.mod": {}, "sqllock/cmd/c/go.mod": {},
	}
	got, err := userModules(tree)
	if err != nil || fmt.Sprint(got) != "[. ratelimit/m sqllock/cmd/c]" {
		t.Errorf("%v, %v", got, err)
	}
	if got, want := tagOf("ratelimit/m", "v0.1.0")+" "+tagOf(".", "v0.1.0"), "ratelimit/m/v0.1.0 v0.1.0"; got != want {
		t.Errorf("tags %s, want %s", got, want)
	}
}

func TestReleaseEdits(t *testing.T) {
	t.Parallel()
	const foreign = `{"Path": "example.com/x"}`
	ours := func(dir string) string { return `{"Path": "` + modulePath(dir) + `"}` }
	tests := []struct {
		name, require, replace string
		want, err              string
	}{
		{"the root", ours(".") + "," + foreign, `{"Old":` + ours(".") + `}`, "-dropreplace=R -require=R@v0.1.0", ""},
		{"nothing of ours", foreign, "", "", ""},
		{"a path that begins like ours", `{"Path": "` + rootPath + `er"}`, "", "", ""},
		{"a foreign replacement", ours("."), `{"Old":` + foreign + `}`, "", "replaces example.com/x"},
		{"a module without a version", ours("internal/x"), "", "", "requires R/internal/x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var mod goMod
			if err := json.Unmarshal([]byte(`{"Require":[`+tt.require+`],"Replace":[`+tt.replace+`]}`), &mod); err != nil {
				t.Fatal(err)
			}
			args, _, err := releaseEdits(mod, []string{rootPath}, "v0.1.0")
			if got := strings.ReplaceAll(strings.Join(args, " "), rootPath, "R"); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if got := strings.ReplaceAll(fmt.Sprint(err), rootPath, "R"); !strings.Contains(got, tt.err) || (err == nil) != (tt.err == "") {
				t.Errorf("error %q, want %q", got, tt.err)
			}
		})
	}
}

func TestPrograms(t *testing.T) {
	t.Parallel()
	const program = "package main\n\nfunc main() {}\n"
	tests := []struct{ name, page, want string }{
		{"a program", "text\n```go\n" + program + "```\ntext", program},
		{"a fragment", "```go\nlocks.TryLock(ctx)\n```", ""},
		{"another language", "```sh\npackage main\n```", ""},
		{"a program that does not compile", "<!-- go: does not compile -->\n```go\n" + program + "```", ""},
	}
	for _, tt := range tests {
		if got := strings.Join(programs(tt.page), "|"); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestComplaint(t *testing.T) {
	t.Parallel()
	tests := []struct{ output, want string }{
		{"go: downloading x v1.0.0\n# p\n./a.go:3:2: undefined: x\nnote\n", "./a.go:3:2: undefined: x"},
		{"\n", "nothing"},
	}
	for _, tt := range tests {
		if got := complaint(tt.output); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// What release does not know is an error before it does anything.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"", "check", "check 0.1.0", "check v2.0.0", "check v0.1", "check v0.01.0", "api now", "-t api"} {
		if err := run(t.Context(), strings.Fields(args), io.Discard); err == nil {
			t.Errorf("release %s: no error", args)
		}
	}
}
