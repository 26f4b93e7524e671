package internal_test

import (
	"fmt"
	"os"
	"regexp"
	"testing"
)

// A program that adds this module, or connectmw, keeps its own versions of these
// modules, if they are these versions or newer.
// docs/decisions/0018-the-oldest-versions.md gives the reasons.
func TestRequirementsStayOld(t *testing.T) {
	for _, file := range []string{"../go.mod", "../grpcmw/connectmw/go.mod"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			requiresOld(t, file)
		})
	}
}

func requiresOld(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for path, most := range map[string][3]int{
		"connectrpc.com/connect":                          {1, 11, 0},
		"google.golang.org/grpc":                          {1, 63, 2},
		"github.com/lib/pq":                               {1, 10, 9},
		"github.com/jackc/pgx/v5":                         {5, 5, 4},
		"github.com/grpc-ecosystem/go-grpc-middleware/v2": {2, 1, 0},
		"google.golang.org/protobuf":                      {1, 33, 0},
		"golang.org/x/net":                                {0, 21, 0},
		"golang.org/x/sync":                               {0, 6, 0},
		"golang.org/x/sys":                                {0, 17, 0},
		"golang.org/x/text":                               {0, 14, 0},
	} {
		found := regexp.MustCompile(`\t` + regexp.QuoteMeta(path) + ` v(\d+\.\d+\.\d+)`).FindSubmatch(text)
		if found == nil {
			continue // not required at all
		}
		var v [3]int
		if _, err := fmt.Sscanf(string(found[1]), "%d.%d.%d", &v[0], &v[1], &v[2]); err != nil {
			t.Fatal(err)
		}
		for i := range v {
			if v[i] != most[i] {
				if v[i] > most[i] {
					t.Errorf("%s requires %s v%s, want at most %v", file, path, found[1], most)
				}
				break
			}
		}
	}
	if regexp.MustCompile(`jmoiron/sqlx`).Match(text) {
		t.Error("go.mod requires sqlx, whose tests are in internal/databases")
	}
}
