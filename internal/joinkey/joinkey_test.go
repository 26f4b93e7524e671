package joinkey_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/joinkey"
)

// The form of an id is a contract: instances of two versions exclude each other
// only if both make the same id.
func TestAppend(t *testing.T) {
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
		var id []byte
		for _, part := range tt.parts {
			id = joinkey.Append(id, part)
		}
		if got := string(id); got != tt.want {
			t.Errorf("%q give %q, want %q", tt.parts, got, tt.want)
		}
	}
}
