package main

import "testing"

func TestUserOf(t *testing.T) {
	for authorization, want := range map[string]string{
		"Bearer alice-token": "alice",
		"Bearer -token":      "",
		"Bearer alice":       "",
		"alice-token":        "",
		"":                   "",
	} {
		if user, ok := userOf(authorization); ok != (want != "") || ok && user != want {
			t.Errorf("%q is %q, %v, want %q", authorization, user, ok, want)
		}
	}
}
