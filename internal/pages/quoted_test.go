package pages

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// prefixes is how messages of the kit begin.
var prefixes = []string{
	"sqllock: ", "election: ", "lockdoctor: ", "lockwatch: ", "shard: ", "watermark: ",
	"ratelimit: ", "httpmw: ", "grpcmw: ", "idempotency: ",
}

// quotedPath is a path below one of the project's folders.
var quotedPath = regexp.MustCompile(`^(?:sqllock|ratelimit|httpmw|grpcmw|internal|examples|docs)/[A-Za-z0-9_./-]+$`)

// A message that a page quotes, as a log line or an error's text, is in the
// source. The quote ends where the message has a value. A file or folder that a
// page quotes is in the tree.
func TestQuotes(t *testing.T) {
	t.Parallel()
	source := readCode(t, func(name string) bool { return !strings.HasSuffix(name, "_test.go") })
	for name, p := range readPages(t) {
		for _, q := range p.quotes {
			if why := unquoted(q.text, source, os.DirFS(root)); why != "" {
				t.Errorf("%s:%d: %s", name, q.line, why)
			}
		}
	}
}

// unquoted says why quote looks like a message or a path, and is neither in
// source nor in tree. It returns "" for a good quote.
func unquoted(quote, source string, tree fs.FS) string {
	for _, prefix := range prefixes {
		if strings.HasPrefix(quote, prefix) && !strings.Contains(source, quote) {
			return fmt.Sprintf("the source has no message %q", quote)
		}
	}
	if quotedPath.MatchString(quote) {
		if _, err := fs.Stat(tree, strings.TrimSuffix(quote, "/")); err != nil {
			return fmt.Sprintf("there is no %s", quote)
		}
	}
	return ""
}

func TestUnquoted(t *testing.T) {
	t.Parallel()
	const source = `errors.New("sqllock: key is held")`
	tree := fstest.MapFS{"sqllock/lease.go": {}}
	for quote, ok := range map[string]bool{
		"sqllock: key is held":   true,
		"sqllock: key is":        true,
		"sqllock: key is busy":   false,
		"sqllock.ErrHeld":        true,
		"sqllock/lease.go":       true,
		"sqllock/":               true,
		"sqllock/leases.go":      false,
		"httpmw/idempotency":     false,
		"go test ./sqllock":      true,
		"application/json":       true,
		"sqllock/lease.go, line": true,
	} {
		if why := unquoted(quote, source, tree); (why == "") != ok {
			t.Errorf("%q: %q", quote, why)
		}
	}
}
