package demo

import (
	"strings"
	"testing"
)

// The check finds what is lost and what is done twice.
func TestCheck(t *testing.T) {
	fine := Account{Jobs: 20, Hopeless: 1, Done: 19, Dead: 1, Effects: 19, Changed: 19, Attempts: 25}
	tests := []struct {
		name  string
		spoil func(*Account)
		want  string // in the error; "": none
	}{
		{"fine", func(*Account) {}, ""},
		{"an effect twice", func(a *Account) { a.Effects++ }, "1 effects happened twice"},
		{"an attempt twice", func(a *Account) { a.Twice++ }, "1 attempts ran twice"},
		{"a job without an effect", func(a *Account) { a.Effects--; a.Changed-- }, "lost"},
		{"a job not done", func(a *Account) { a.Done-- }, "lost"},
		{"a job dead that should not be", func(a *Account) { a.Done--; a.Dead++ }, "lost"},
		{"one twice and one not", func(a *Account) { a.Changed-- }, "1 effects happened twice"},
	}
	for _, tt := range tests {
		a := fine
		tt.spoil(&a)
		switch err := a.check(); {
		case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
