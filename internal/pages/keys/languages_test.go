package keys

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A keyLanguage is a language in which the page has functions. A program of it
// is the page's code, then show, then a call of show for each result, which is
// printed on a line, in JSON.
type keyLanguage struct {
	name, program, file, show string
	call, bytes, integer      string // formats
	camelCase                 bool   // of its functions
	small                     bool   // for calls with small integers alone
}

const (
	pythonShow = `
import json

def show(call):
    try:
        result = call()
    except OverflowError:
        result = "does not fit"
    print(json.dumps(", ".join(map(str, result)) if isinstance(result, tuple) else str(result)))
`
	nodeShow = `
const show = (call) => {
  let result = "does not fit";
  try {
    result = call();
  } catch (e) {
    if (!(e instanceof RangeError)) throw e;
  }
  console.log(JSON.stringify(Array.isArray(result) ? result.join(", ") : String(result)));
};
`
)

var keyLanguages = map[string]keyLanguage{
	"python": {"python", "python3", "keys.py", pythonShow, "show(lambda: %s)", `bytes.fromhex("%x")`, "%d", false, false},
	"BigInt": {"js", "node", "keys.cjs", nodeShow, "show(() => %s);", `Buffer.from("%x", "hex")`, "%dn", true, false},
	"Number": {"js", "node", "keys.cjs", nodeShow, "show(() => %s);", `Buffer.from("%x", "hex")`, "%d", true, true},
}

// source returns c in l; ok reports whether it can be written so.
func (l keyLanguage) source(c keyCall) (code string, ok bool) {
	var args []string
	for _, arg := range c.args {
		switch arg := arg.(type) {
		case string:
			text, _ := json.Marshal(arg) // a literal of both languages
			args = append(args, string(text))
		case int64:
			if l.small && arg != int64(int32(arg)) {
				return "", false
			}
			args = append(args, fmt.Sprintf(l.integer, arg))
		case []byte:
			args = append(args, fmt.Sprintf(l.bytes, arg))
		}
	}
	words := strings.Split(c.function, "_")
	for i := range words {
		if l.camelCase && i > 0 {
			words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
		}
	}
	separator := "_"
	if l.camelCase {
		separator = ""
	}
	return fmt.Sprintf(l.call, strings.Join(words, separator)+"("+strings.Join(args, ", ")+")") + "\n", true
}

// Python and Node compute the same keys as Go.
func TestKeysPageLanguages(t *testing.T) {
	for name, l := range keyLanguages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program, err := exec.LookPath(l.program)
			if errors.Is(err, exec.ErrNotFound) {
				t.Skipf("the page's %s is not checked here: there is no %s in PATH", l.name, l.program)
			}
			code := strings.Join(readKeysPage(t).all(t, l.name), "\n") + l.show
			var calls []keyCall
			// SQL has no check for a task outside its service's numbers.
			for _, call := range append(keyCalls(),
				keyCall{"task_key", []any{int64(billing), int64(1000)}, overflow},
				keyCall{"task_key", []any{int64(billing), int64(-1)}, overflow}) {
				if line, ok := l.source(call); ok {
					calls, code = append(calls, call), code+line
				}
			}
			file := filepath.Join(t.TempDir(), l.file)
			if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), program, file)
			cmd.Stderr = &stderr
			output, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s: %v\n%s", l.program, err, stderr.String())
			}
			var results []string
			for line := range strings.Lines(string(output)) {
				var result string
				if err := json.Unmarshal([]byte(line), &result); err != nil {
					t.Fatalf("%s says %q: %v", l.program, line, err)
				}
				results = append(results, result)
			}
			compareKeys(t, calls, results)
		})
	}
}
