// Package internal_test checks that imports follow one road:
//
//	httpmw, grpcmw → ratelimit → sqllock → internal/session → internal/dialect
//	                                       internal/session → internal/keytable
//
// sqllock speaks to the key table, too. internal/session and ratelimit count by
// internal/histogram. httpmw, grpcmw and grpcmw/connectmw share
// internal/admission, and the last two internal/rpclimit. They call ratelimit,
// and ratelimit calls sqllock, by internal/inside beyond the exported names.
// httpmw/idempotency is in front of httpmw.
// Only idempotency reads the error codes of databases, by internal/dialect/errcode
// (docs/decisions/0015).
// ratelimit/otellatchkey, ratelimit/promlatchkey and sqllock/pgxlatchkey use public
// packages only, so that a program may combine any of their versions
// (docs/decisions/0029).
//
// internal/dialect has a road of its own:
//
//	choose → leasetable → postgres → dbconn → dialect → errcode
//	choose → leasetable → mysql → dbconn
package internal_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/latchkey-go/latchkey"

// roots are the top-level folders that may hold Go code.
var roots = []string{"sqllock", "ratelimit", "httpmw", "grpcmw", "internal", "examples"}

// mayImport lists what the non-test files of a package may import besides the
// standard library: packages, and the packages below them. Our own packages
// stand without the module's path. A package that is not listed may import
// anything that offence does not forbid.
var mayImport = map[string][]string{
	"internal/admission":        {"ratelimit", "sqllock", "internal/inside"},
	"internal/bound":            {},
	"internal/dialect/errcode":  {},
	"internal/dialect":          {"internal/dialect/errcode"},
	"internal/dialect/dbconn":   {"internal/dialect", "internal/dialect/errcode"},
	"internal/dialect/usertx":   {"internal/dialect", "internal/dialect/errcode"},
	"internal/dialect/postgres": {"internal/bound", "internal/dialect", "internal/dialect/dbconn", "internal/dialect/errcode"},
	"internal/dialect/mysql":    {"internal/bound", "internal/dialect", "internal/dialect/dbconn", "internal/dialect/errcode", "internal/dialect/usertx"},
	"internal/dialect/leasetable": {
		"internal/dialect",
		"internal/dialect/dbconn",
		"internal/dialect/errcode",
		"internal/dialect/mysql",    // for what a server says about itself, and the locks of GET_LOCK
		"internal/dialect/postgres", // for PostgreSQL's proof of a primary, its tokens and its intervals
		"internal/dialect/usertx",
	},
	"internal/dialect/choose": {
		"internal/dialect",
		"internal/dialect/dbconn",
		"internal/dialect/errcode",
		"internal/dialect/leasetable",
		"internal/dialect/mysql",
		"internal/dialect/postgres",
	},
	"internal/histogram": {},
	"internal/inside":    {"internal/keytable"},
	"internal/instruments": {
		"ratelimit",
		"sqllock",
		"sqllock/election",
		"sqllock/lockwatch",
	},
	"internal/keytable": {},
	"internal/rpclimit": {
		"ratelimit",
		"sqllock",
		"internal/admission",
		"internal/inside",
		"google.golang.org/genproto/googleapis/rpc",
		"google.golang.org/protobuf",
	},
	"internal/session": {
		"internal/bound", // longer bounds in tests
		"internal/dialect",
		"internal/dialect/choose",
		"internal/dialect/dbconn",
		"internal/dialect/errcode",
		"internal/dialect/postgres", // for the registry, which only PostgreSQL has
		"internal/histogram",
		"internal/keytable",
	},
	"internal/subprocess": {},
	"sqllock": {
		"internal/bound", // longer bounds in tests
		"internal/dialect",
		"internal/dialect/errcode",
		"internal/dialect/leasetable",
		"internal/dialect/mysql",
		"internal/dialect/postgres",
		"internal/dialect/usertx",
		"internal/inside",
		"internal/keytable",
		"internal/session",
	},
	"sqllock/cmd/latchkey": { // the command brings the drivers
		"internal/bound",
		"sqllock",
		"sqllock/lockdoctor",
		"sqllock/lockui",
		"sqllock/lockwatch",
		"github.com/go-sql-driver/mysql",
		"github.com/jackc/pgx",
		"github.com/urfave/cli",
		"golang.org/x/sys",
		"modernc.org/sqlite",
	},
	"sqllock/election": {"internal/inside", "sqllock"},
	"sqllock/lockdoctor": {
		"internal/bound",
		"sqllock",
		"sqllock/lockwatch",
		"sqllock/watermark",
		"internal/dialect",
		"internal/dialect/choose",
		"internal/dialect/dbconn",
		"internal/dialect/errcode",
		"internal/dialect/leasetable",
		"internal/dialect/mysql",
		"internal/dialect/postgres",
	},
	"sqllock/lockui": {"internal/bound", "internal/inside", "sqllock", "sqllock/election", "sqllock/lockdoctor", "sqllock/lockwatch"},
	"sqllock/lockwatch": {
		"internal/bound",
		"sqllock",
		"internal/session", // for what an error means to callers
		"internal/dialect",
		"internal/dialect/choose",
		"internal/dialect/dbconn",
		"internal/dialect/errcode",
		"internal/dialect/leasetable",
		"internal/dialect/mysql",
		"internal/dialect/postgres",
	},
	"sqllock/pgxlatchkey": {"sqllock", "github.com/jackc/pgx"}, // for users of pgx's own interface
	"sqllock/shard":       {"internal/inside", "sqllock"},
	"sqllock/watermark":   {"sqllock", "internal/session", "internal/dialect", "internal/dialect/errcode", "internal/dialect/usertx"},
	"ratelimit":           {"sqllock", "internal/inside", "internal/histogram"},
	"ratelimit/otellatchkey": {
		"internal/histogram",
		"internal/instruments",
		"ratelimit",
		"sqllock",
		"sqllock/election",
		"sqllock/lockwatch",
		"go.opentelemetry.io/otel",
	},
	"ratelimit/promlatchkey": {
		"internal/instruments",
		"ratelimit",
		"sqllock",
		"sqllock/election",
		"sqllock/lockwatch",
		"github.com/prometheus/client_golang/prometheus",
	},
	"httpmw": {"ratelimit", "sqllock", "internal/admission"},
	"httpmw/idempotency": {
		"internal/inside",
		"httpmw",
		"internal/bound", // longer bounds in tests
		"ratelimit",
		"sqllock",
		"internal/dialect",
		"internal/dialect/choose",
		"internal/dialect/dbconn",
		"internal/dialect/errcode",
		"internal/admission",
	},
	"grpcmw": {
		"ratelimit",
		"internal/admission",
		"internal/rpclimit",
		"google.golang.org/genproto/googleapis/rpc",
		"google.golang.org/grpc",
		"google.golang.org/protobuf",
		"github.com/grpc-ecosystem/go-grpc-middleware/v2",
	},
	"grpcmw/connectmw": {
		"ratelimit",
		"internal/admission",
		"internal/rpclimit",
		"google.golang.org/genproto/googleapis/rpc",
		"connectrpc.com/connect",
	},
}

// drivers are database drivers and their wrappers, and the SDK of OpenTelemetry.
// The user chooses them.
var drivers = []string{
	"github.com/jackc", "github.com/lib/pq", "github.com/jmoiron/sqlx", "github.com/go-sql-driver", "modernc.org/sqlite",
	"go.opentelemetry.io/otel/sdk",
}

// offence returns why a file at path must not import imported, or "" if it may.
// path has slashes and is relative to the module's root.
func offence(path, imported string) string {
	pkg := path[:max(0, strings.LastIndexByte(path, '/'))]
	test := strings.HasSuffix(path, "_test.go")
	ours, isOurs := strings.CutPrefix(imported, module+"/")
	if !isOurs {
		ours = imported
	}
	switch {
	case within(ours, "examples") && isOurs && !within(pkg, "examples"):
		return "no package imports examples"
	case within(pkg, "httpmw") && isOurs && within(ours, "grpcmw"), within(pkg, "grpcmw") && isOurs && within(ours, "httpmw"):
		return "httpmw and grpcmw do not import each other"
	case test:
		return "" // tests import pgtest, drivers and each other's packages
	case slices.ContainsFunc(drivers, func(d string) bool { return within(imported, d) }) &&
		!within(pkg, "internal") && !within(pkg, "examples") && !within(pkg, "sqllock/cmd") && pkg != "sqllock/pgxlatchkey":
		return "only the user imports a driver"
	}
	from, to := layerOf(pkg), layerOf(ours)
	if from == "" || from == to || inStandardLibrary(imported) {
		return ""
	}
	for _, allowed := range mayImport[from] {
		if allowed == to || to == "" && within(ours, allowed) {
			return ""
		}
	}
	return "mayImport does not list it"
}

// layerOf returns the innermost layer of mayImport that path is in, or "".
// Packages of one layer may import each other.
func layerOf(path string) (innermost string) {
	for layer := range mayImport {
		if within(path, layer) && len(layer) > len(innermost) {
			innermost = layer
		}
	}
	return innermost
}

// within reports whether path is root or below it.
func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// inStandardLibrary reports whether path is a package of the standard library:
// its first element has no dot. cgo's "C" does not count.
func inStandardLibrary(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") && path != "C"
}

func TestImports(t *testing.T) {
	seen := 0
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipDir(path)
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		if root, _, below := strings.Cut(path, "/"); !below || !slices.Contains(roots, root) {
			t.Errorf("%s: Go code belongs in one of %v", path, roots)
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", path), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		seen++
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if why := offence(path, imported); why != "" {
				t.Errorf("%s imports %s: %s", path, imported, why)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Error("no Go file seen: the test checks nothing")
	}
}

// skipDir skips folders that are not this module's code: hidden folders, and
// testdata, which go build ignores too.
func skipDir(path string) error {
	name := filepath.Base(path)
	if path != "." && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata") {
		return fs.SkipDir
	}
	return nil
}

// The test of offence itself, with imports that it must reject.
func TestOffence(t *testing.T) {
	tests := []struct {
		path, imported string
		ok             bool
	}{
		{"sqllock/a.go", "context", true},
		{"sqllock/a.go", "C", false},
		{"sqllock/a.go", module + "/internal/dialect/postgres", true}, // mayImport lists it
		{"sqllock/a.go", module + "/internal/dialect/dbconn", false},
		{"sqllock/a.go", module + "/ratelimit", false},
		{"sqllock/deeper/a.go", module + "/sqllock", true}, // of one layer
		{"sqllock/election/a.go", module + "/sqllock/shard", false},
		{"httpmw/a.go", module + "/sqllockother", false},
		{"grpcmw/a.go", "google.golang.org/grpc/codes", true}, // below what is listed
		{"grpcmw/connectmw/a.go", "google.golang.org/grpc/codes", false},
		{"httpmw/a_test.go", module + "/grpcmw", false}, // the two middlewares are apart, also in tests
		{"grpcmw/a.go", module + "/httpmw", false},
		{"sqllock/a.go", "github.com/lib/pq", false}, // the user chooses the driver
		{"sqllock/a_test.go", "github.com/lib/pq", true},
		{"sqllock/pgxlatchkey/a.go", "github.com/lib/pq", false},
		{"ratelimit/otellatchkey/a.go", "go.opentelemetry.io/otel/sdk/metric", false},
		{"examples/a/main.go", module + "/examples/b", true},
		{"internal/pgtest/a.go", module + "/examples/quickstart", false},
	}
	for _, tt := range tests {
		if why := offence(tt.path, tt.imported); (why == "") != tt.ok {
			t.Errorf("%s imports %s: %q, want it to be allowed: %v", tt.path, tt.imported, why, tt.ok)
		}
	}
}
