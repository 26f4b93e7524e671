package keys

import (
	"os"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// compositeKey is the function that the page's Go declares.
func compositeKey(class, object int32) sqllock.Key {
	return sqllock.ID(int64(class)<<32 | int64(uint32(object)))
}

// The Go code of the page is the code that the Examples run.
func TestKeysPageGo(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../../sqllock/example_key_schemes_test.go")
	if err != nil {
		t.Fatal(err)
	}
	examples := withoutIndent(string(source))
	for _, block := range readKeysPage(t).all(t, "go") {
		for part := range strings.SplitSeq(block, "\n\n") {
			if !strings.Contains(examples, "\n"+withoutIndent(part)+"\n") {
				t.Errorf("no Example has this:\n%s", part)
			}
		}
	}
}

func withoutIndent(code string) string {
	lines := strings.Split(code, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimLeft(line, "\t ")
	}
	return strings.Join(lines, "\n")
}
