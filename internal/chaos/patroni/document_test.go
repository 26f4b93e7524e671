//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteDocument(t *testing.T) {
	const table = "\n\nTABLE\n"
	tests := []struct {
		name, document, want string // want empty: rejected
	}{
		{"first time", "# A\n<!-- campaign -->\n<!-- end of campaign -->\nB\n", "# A\n<!-- campaign -->" + table + "<!-- end of campaign -->\nB\n"},
		{"again", "# A\n<!-- campaign -->\n\nOLD\nold\n<!-- end of campaign -->", "# A\n<!-- campaign -->" + table + "<!-- end of campaign -->"},
		{"no marks", "# A\n", ""},
		{"no end", "<!-- campaign -->\n", ""},
		{"no beginning", "<!-- end of campaign -->\n", ""},
		{"wrong order", "<!-- end of campaign -->\n<!-- campaign -->\n", ""},
		{"twice", "<!-- campaign -->\n<!-- end of campaign -->\n<!-- campaign -->\n<!-- end of campaign -->\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "document.md")
			if err := os.WriteFile(name, []byte(tt.document), 0o600); err != nil {
				t.Fatal(err)
			}
			checked, err := checkDocument(name), writeDocument(name, "TABLE")
			got, readErr := os.ReadFile(name)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if tt.want == "" {
				if !errors.Is(err, errMarks) || !errors.Is(checked, errMarks) || string(got) != tt.document {
					t.Errorf("got %v, %v and %q, want it rejected and left alone", checked, err, got)
				}
			} else if err != nil || checked != nil || string(got) != tt.want {
				t.Errorf("got %v, %v and %q, want %q", checked, err, got, tt.want)
			}
		})
	}
	if err := writeDocument(filepath.Join(t.TempDir(), "none"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a document that does not exist: %v", err)
	}
}
