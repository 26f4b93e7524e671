package check

import (
	"errors"
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A history lacks nothing but what a killed process could not write.
func TestComplete(t *testing.T) {
	for _, tt := range []struct {
		name   string
		events []history.Event
		want   error
	}{
		{"whole", turn(1, 1, 0, 3), nil},
		{"no Try", turn(1, 1, 0, 3)[1:], ErrMalformed},
		{"no Hold", turn(1, 1, 0, 3)[:1], ErrMalformed},
		{"no end", list(granted(1, 1, 0, 1), held(1, 1, 1, 2)), ErrMalformed},
		{"no end, since it was killed", list(granted(1, 1, 0, 1), held(1, 1, 1, 2), fault(kill, 1, 3, 3)), nil},
		{"no end, and a kill that could not be made", list(granted(1, 1, 0, 1), held(1, 1, 1, 2), fault(kill, 0, 3, 3)), ErrMalformed},
		{"another was killed", list(granted(1, 1, 0, 1), held(1, 1, 1, 2), fault(kill, 2, 3, 3)), ErrMalformed},
		{"frozen, not killed", list(granted(1, 1, 0, 1), held(1, 1, 1, 2), fault(freeze, 1, 3, 3)), ErrMalformed},
	} {
		if err := Sweep(tt.events, WithKills(kill), WithComplete()).Err(); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}
