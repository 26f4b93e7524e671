package postgres

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A response that does not fit the request is an error, or an unlock of what was
// not held, and never a grant.
func TestAnswerMustFit(t *testing.T) {
	t.Parallel()
	looks := func() *dialect.Batch {
		return &dialect.Batch{Looks: []dialect.Look{{Keys: big(1, 2, 3), Want: 2}, {Keys: big(4), Want: 1}}}
	}
	stacks := func(levels ...[]dialect.Key) func() *dialect.Batch {
		return func() *dialect.Batch { return &dialect.Batch{Stacks: []dialect.Stack{{Levels: levels}}} }
	}
	two := func() *dialect.Batch { return &dialect.Batch{Release: big(1, 2)} }
	one := func() *dialect.Batch { return &dialect.Batch{Try: big(1)} }
	for _, tt := range []struct {
		name    string
		batch   func() *dialect.Batch
		form    form
		columns []string
	}{
		{"two looks", looks, tryLooks, []string{
			"{}", "{0}", "{0,0,0}", "{1,0,0}", "{1,4,0}", "{2,2,1,0}", "{2,1,1,0}", "{3,1,2,3,0}", "{-1,0}", "{0,1}", "{0,2,1,1}", "nonsense", "", "true",
		}},
		{"a stack", stacks(big(1, 2), big(3)), tryStacks, []string{
			"{}", "{0,0}", "{1}", "{1,0}", "{1,3}", "{2,1}", "{2,1,2}", "{2,3,3}", "{2,1,4}", "{3,1,2,3}", "{-1}", "{2,1,3,0}", "",
		}},
		{"two keys", two, releaseKeys, []string{"{0}", "{3}", "{-1}", ""}},
		{"one key", one, tryKeys | single, []string{"maybe", "", "{1}"}},
	} {
		for _, column := range tt.columns {
			if b := tt.batch(); readResponse(b, tt.form, []string{column}) == nil && !b.NotHeld {
				t.Errorf("%s: an answer of %v was accepted: %+v", tt.name, column, b)
			}
		}
	}
}
