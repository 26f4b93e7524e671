package demo

import "testing"

// The demonstration's verdict finds what is lost and what is done twice.
func TestCheck(t *testing.T) {
	fine := Account{Jobs: 20, Hopeless: 1, Done: 19, Dead: 1, Effects: 19, Changed: 19, Attempts: 25}
	for name, spoil := range map[string]func(*Account){
		"an effect twice":                  func(a *Account) { a.Effects++ },
		"an attempt twice":                 func(a *Account) { a.Twice++ },
		"a job without an effect":          func(a *Account) { a.Effects--; a.Changed-- },
		"a job not done":                   func(a *Account) { a.Done-- },
		"a job dead that should not be":    func(a *Account) { a.Done--; a.Dead++ },
		"one effect twice, one not at all": func(a *Account) { a.Changed-- },
	} {
		a := fine
		if spoil(&a); a.check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := fine.check(); err != nil {
		t.Errorf("all is well: %v", err)
	}
}
