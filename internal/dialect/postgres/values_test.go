package postgres

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
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
		again, err := parseArray("{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]") + "}")
		if err != nil || !slices.Equal(again, numbers) {
			t.Errorf("%q: %v became %v, %v", text, numbers, again, err)
		}
	})
}
