package lockui_test

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
)

// Misuse panics at construction, and says of which option.
func TestMisuse(t *testing.T) {
	t.Parallel()
	for name, misuse := range map[string]func(){
		"New":           func() { lockui.New(nil) },
		"WithSession":   func() { lockui.WithSession("main", nil) },
		"WithLimiter":   func() { lockui.WithLimiter(nil) },
		"WithCampaign":  func() { lockui.WithCampaign("mailer", nil) },
		"WithAuthorize": func() { lockui.WithAuthorize(nil) },
		"WithTerminate": func() { lockui.WithTerminate(nil) },
		"WithSchema":    func() { lockui.WithSchema("") },
		"WithLongHeld":  func() { lockui.WithLongHeld(0) },
		"WithLogger":    func() { lockui.WithLogger(nil) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "lockui: ") {
					t.Errorf("%s: panic %q", name, text)
				}
			}()
			misuse()
		}()
	}
	defer func() {
		if recover() == nil {
			t.Error("a Session without a name is accepted")
		}
	}()
	lockui.WithSession("", &sqllock.Session{})
}
