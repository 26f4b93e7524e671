package campaign

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestPaste(t *testing.T) {
	tests := []struct {
		name, document, want string // want empty: refused
	}{
		{"first time", "# A\n<!-- campaign -->\n<!-- end of campaign -->\nB\n", "# A\n<!-- campaign -->\n\nTABLE\n<!-- end of campaign -->\nB\n"},
		{"again", "# A\n<!-- campaign -->\n\nOLD\nold\n<!-- end of campaign -->", "# A\n<!-- campaign -->\n\nTABLE\n<!-- end of campaign -->"},
		{"no marks", "# A\n", ""},
		{"no end", "<!-- campaign -->\n", ""},
		{"no beginning", "<!-- end of campaign -->\n", ""},
		{"the wrong way round", "<!-- end of campaign -->\n<!-- campaign -->\n", ""},
		{"twice", "<!-- campaign -->\n<!-- end of campaign -->\n<!-- campaign -->\n<!-- end of campaign -->\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "document.md")
			if err := os.WriteFile(name, []byte(tt.document), 0o600); err != nil {
				t.Fatal(err)
			}
			can, err := CanPaste(name), Paste(name, "TABLE")
			got, readErr := os.ReadFile(name)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if tt.want == "" {
				if !errors.Is(err, errMarks) || !errors.Is(can, errMarks) || string(got) != tt.document {
					t.Errorf("got %v, %v and %q, want it refused and left alone", can, err, got)
				}
			} else if err != nil || can != nil || string(got) != tt.want {
				t.Errorf("got %v, %v and %q, want %q", can, err, got, tt.want)
			}
		})
	}
	if err := Paste(filepath.Join(t.TempDir(), "none"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a document that is not there: %v", err)
	}
}
