package keys

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A keysPage is the code in docs/keys.md, by section and language.
type keysPage map[string]map[string][]string

func readKeysPage(tb testing.TB) keysPage {
	tb.Helper()
	text, err := os.ReadFile("../../../docs/keys.md")
	if err != nil {
		tb.Fatal(err)
	}
	page := keysPage{}
	for section := range strings.SplitSeq(string(text), "\n## ") {
		title, rest, _ := strings.Cut(section, "\n")
		page[title] = map[string][]string{}
		for {
			_, fenced, ok := strings.Cut(rest, "\n```")
			if !ok {
				break
			}
			block, after, closed := strings.Cut(fenced, "\n```\n")
			if !closed {
				tb.Fatalf("a block of section %q does not end", title)
			}
			language, code, _ := strings.Cut(block, "\n")
			page[title][language] = append(page[title][language], code)
			rest = "\n" + after
		}
	}
	return page
}

// all returns the blocks of one language in the whole page, in the page's
// order.
func (p keysPage) all(tb testing.TB, language string) []string {
	tb.Helper()
	var blocks []string
	for _, title := range []string{
		"Names", "Slots", "Names that strangers choose", "Pairs: type and id",
		"Type and id in one bigint", "A service's tasks", "Who holds this key", "Another scheme",
	} {
		blocks = append(blocks, p[title][language]...)
	}
	n := 0
	for _, section := range p {
		n += len(section[language])
	}
	if n != len(blocks) || n == 0 {
		tb.Fatalf("the page has %d blocks of %s, of which %d are in a known section", n, language, len(blocks))
	}
	return blocks
}

// A keyCall is a call of one of the page's functions. Its arguments are
// strings, int64 and []byte. JavaScript writes the function's name in camel
// case.
type keyCall struct {
	function string
	args     []any
	want     string // Go's result; overflow if the numbers do not fit
}

const overflow = "does not fit"

func (c keyCall) String() string { return fmt.Sprintf("%s%.60q", c.function, c.args) }

// keyCalls returns the calls for every language, with Go's results.
func keyCalls() []keyCall {
	var calls []keyCall
	add := func(function string, want any, args ...any) {
		calls = append(calls, keyCall{function, args, fmt.Sprint(want)})
	}
	secrets := []string{"secret", "the fleet's secret", "\x00", strings.Repeat("\xff", 64), strings.Repeat("long", 17)}
	for i, name := range keyNames {
		for _, ns := range []sqllock.Namespace{"export", "it's \\ a \"naïve\" 🦊 %s"} {
			add("key", ns.Key(name).Int64(), string(ns), name)
			for _, slot := range []int{0, 1, 12, math.MaxInt32} {
				add("slot_key", ns.SlotKey(name, slot).Int64(), string(ns), name, int64(slot))
			}
			secret := []byte(secrets[i%len(secrets)])
			add("keyed_key", ns.Keyed(secret).Key(name).Int64(), secret, string(ns), name)
			add("keyed_slot_key", ns.Keyed(secret).SlotKey(name, 3).Int64(), secret, string(ns), name, int64(3))
		}
		other := keyNames[len(keyNames)-1-i]
		add("join", string(admission.AppendPart(admission.AppendPart(nil, name), other)), name, other)
	}
	for _, class := range keyNumbers {
		for _, object := range keyNumbers {
			if class != int64(int32(class)) || object != int64(int32(object)) {
				add("pair", overflow, class, object)
				add("composite_key", overflow, class, object)
				continue
			}
			add("pair", fmt.Sprintf("%d, %d", class, object), class, object)
			add("composite_key", compositeKey(int32(class), int32(object)).Int64(), class, object)
		}
	}
	add("task_key", sqllock.ID(taskInvoices).Int64(), int64(billing), int64(0))
	add("task_key", sqllock.ID(taskStatements).Int64(), int64(billing), int64(2))
	add("task_key", int64(math.MinInt64+999), int64(math.MinInt64), int64(999))
	return calls
}

var keyNames = []string{
	"user-1", "", "Zoë", "Zoe\u0308", "日本語", "a:b", "a#1", ":", "it's", `a "quoted" name`, `back\slash`, "two\nlines", "tab\t", " ",
	"🦊👩‍👩‍👧", "%s %d {} ${id} $1 :id :'id'", "-- not a comment", strings.Repeat("ë", 512), "9223372036854775807",
}

var keyNumbers = []int64{
	0, 1, -1, 42, math.MaxInt32, math.MinInt32, math.MaxInt32 + 1, math.MinInt32 - 1, 1 << 32, math.MaxInt64, math.MinInt64,
}

// compareKeys reports the calls whose results differ from Go's.
func compareKeys(t *testing.T, calls []keyCall, results []string) {
	t.Helper()
	if len(results) != len(calls) {
		t.Fatalf("%d results of %d calls", len(results), len(calls))
	}
	for i, call := range calls {
		if results[i] != call.want {
			t.Errorf("%v: %q, in Go %q", call, cmp.Or(results[i], "nothing"), call.want)
		}
	}
}
