package postgres

import (
	"reflect"
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

func TestParseArray(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want []int64
		ok   bool
	}{
		{"{1}", []int64{1}, true},
		{"{1,-9223372036854775808,9223372036854775807}", []int64{1, -1 << 63, 1<<63 - 1}, true},
		{"{}", nil, true},
		{"", nil, false},
		{"{", nil, false},
		{"}", nil, false},
		{"{1,}", nil, false},
		{"{1.5}", nil, false},
		{"{9223372036854775808}", nil, false},
		{"{NULL}", nil, false},
	}
	for _, tt := range tests {
		got, err := parseArray(tt.text)
		if (err == nil) != tt.ok || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("parseArray(%q) = %v, %v", tt.text, got, err)
		}
	}
	if _, err := parseArray(nil); err == nil {
		t.Error("parseArray(nil): no error")
	}
}

// The statement with all parts carries also those that a batch does not have.
func TestPartsWithoutElements(t *testing.T) {
	t.Parallel()
	b := new(dialect.Batch)
	for name, text := range map[string][]byte{
		"keys":   appendText(nil, b.Try, dialect.Bigint),
		"looks":  appendLooks(nil, b.Looks),
		"levels": appendStacks(nil, b.Stacks, tryLevels),
		"firsts": appendStacks(nil, b.Stacks, tryFirsts),
		"sets":   appendStacks(nil, b.Stacks, trySets),
	} {
		if s := string(text); s != "{}" && s != "{0}" { // the number of stacks comes first, but for sets
			t.Errorf("%s: %s", name, s)
		}
	}
}

func FuzzParseArray(f *testing.F) {
	for _, seed := range []string{"{1,2}", "{}", "{-1}", "{1,}", "x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		numbers, err := parseArray(text)
		if err != nil {
			return
		}
		keys := make([]dialect.Key, len(numbers))
		for i, n := range numbers {
			keys[i] = dialect.Key{Space: dialect.Bigint, ID: n}
		}
		again, err := parseArray(string(appendText(nil, keys, dialect.Bigint)))
		if err != nil || !slices.Equal(again, numbers) {
			t.Errorf("%q: %v became %v, %v", text, numbers, again, err)
		}
	})
}
