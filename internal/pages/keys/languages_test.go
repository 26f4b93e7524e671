package keys

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// These programs call the functions of the page in their own language. Standard
// input holds the calls, in JSON. Standard output gets the results, one a line,
// in JSON.
const (
	callPython = `
import json, sys

def _argument(arg):
    (kind, value), = arg.items()
    return {"text": str, "integer": int, "bytes": bytes.fromhex}[kind](value)

for _call in json.loads(sys.stdin.buffer.read()):
    try:
        _answer = globals()[_call["function"]](*map(_argument, _call["args"]))
    except OverflowError:
        _answer = "does not fit"
    except UnicodeEncodeError:
        _answer = "not text"
    print(json.dumps(", ".join(map(str, _answer)) if isinstance(_answer, tuple) else str(_answer)))
`
	// Integers are passed as BigInt and, where that is exact, as Number too.
	callNode = `
const _oneWord = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
const _argument = (integer) => ({ text, integer: digits, bytes }) =>
  text !== undefined ? text : bytes !== undefined ? Buffer.from(bytes, "hex") : integer(digits);
const _answer = (call, integer) => {
  try {
    const result = eval(_oneWord(call.function))(...call.args.map(_argument(integer)));
    return Array.isArray(result) ? result.join(", ") : String(result);
  } catch (e) {
    if (e instanceof RangeError) return "does not fit";
    throw e;
  }
};
for (const call of JSON.parse(require("node:fs").readFileSync(0, "utf8"))) {
  const result = _answer(call, BigInt);
  if (call.args.every((arg) => !arg.integer || Number.isSafeInteger(Number(arg.integer)))) {
    const again = _answer(call, Number);
    if (again !== result) throw new Error(call.function + ": a Number gives " + again + ", a BigInt " + result);
  }
  console.log(JSON.stringify(result));
}
`
)

// A keyLanguage is a language in which the page has functions.
type keyLanguage struct {
	name, program, file, call string
}

var keyLanguages = []keyLanguage{
	{"python", "python3", "keys.py", callPython},
	{"js", "node", "keys.cjs", callNode},
}

// results runs the page's code with calls, in JSON, and returns the results.
func (l keyLanguage) results(t *testing.T, calls []byte) []string {
	t.Helper()
	program, err := exec.LookPath(l.program)
	if errors.Is(err, exec.ErrNotFound) {
		t.Skipf("the page's %s is not checked here: there is no %s in PATH", l.name, l.program)
	}
	file := filepath.Join(t.TempDir(), l.file)
	code := strings.Join(readKeysPage(t).all(t, l.name), "\n") + l.call
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, file)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(calls), &stderr
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
	return results
}

// Python and Node compute the same keys as Go.
func TestKeysPageLanguages(t *testing.T) {
	for _, language := range keyLanguages {
		t.Run(language.program, func(t *testing.T) {
			t.Parallel()
			// SQL has no check for a task outside its service's numbers.
			calls := append(keyCalls(),
				keyCall{"task_key", []any{int64(billing), int64(1000)}, overflow},
				keyCall{"task_key", []any{int64(billing), int64(-1)}, overflow})
			text, err := json.Marshal(calls)
			if err != nil {
				t.Fatal(err)
			}
			compareKeys(t, calls, language.results(t, text))
		})
	}
}
