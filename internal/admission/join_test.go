package admission_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/admission"
)

// join returns the id of parts.
func join(parts ...string) string {
	var id []byte
	for _, part := range parts {
		id = admission.AppendPart(id, part)
	}
	return string(id)
}

// The form of an id is a contract: instances of two versions exclude each other
// only if both make the same id.
func TestAppendPart(t *testing.T) {
	for _, tt := range []struct {
		parts []string
		want  string
	}{
		{[]string{"a"}, "1:a"},
		{[]string{"a:b", "c"}, "3:a:b1:c"},
		{[]string{"a", "b:c"}, "1:a3:b:c"},
		{[]string{"é", "7"}, "2:é1:7"},
		{[]string{"", "a"}, "0:1:a"},
	} {
		if got := join(tt.parts...); got != tt.want {
			t.Errorf("%q give %q, want %q", tt.parts, got, tt.want)
		}
	}
}

// Different parts never join to the same id, however they are nested.
func FuzzAppendPart(f *testing.F) {
	for _, parts := range [][4]string{
		{"a:b", "c", "a", "b:c"}, {"1:a", "b", "1", "a1:b"}, {"a", "a", "a", "a"}, {"1", "1:1", "1:1", "1"},
		{"", "a", "a", ""}, {"12", "3", "1", "23"}, {"a", "1:b", "a1:", "b"},
	} {
		f.Add(parts[0], parts[1], parts[2], parts[3])
	}
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		same := a == c && b == d
		if one, two := join(a, b), join(c, d); (one == two) != same {
			t.Errorf("(%q, %q) and (%q, %q) give %q and %q", a, b, c, d, one, two)
		}
		if nested, other := join(join(a, b), c), join(join(c, d), c); (nested == other) != same {
			t.Errorf("nested: (%q, %q) and (%q, %q) give %q and %q", a, b, c, d, nested, other)
		}
	})
}
