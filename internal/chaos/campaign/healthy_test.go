package campaign

import (
	"errors"
	"strings"
	"testing"
)

func TestHealth(t *testing.T) {
	for _, tt := range []struct {
		name   string
		health Health
		want   error
	}{
		{"nothing lost", Health{Holds: 10}, nil},
		{"one lost", Health{Holds: 1_000_000, Losses: 1}, errFalseLoss},
		{"a connection lost", Health{Holds: 10, Connections: 1}, errFalseLoss},
		{"starved, one in 10,000", Health{Hogs: 6, Holds: 20_000, Losses: 2, Connections: 1}, nil},
		{"starved, more", Health{Hogs: 6, Holds: 20_000, Losses: 3, Connections: 1}, errFalseLoss},
		{"starved, of few", Health{Hogs: 6, Holds: 9_999, Losses: 1, Connections: 1}, errFalseLoss},
	} {
		if err := tt.health.err(); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if err := new(Health).err(); err == nil {
		t.Error("no holds at all, and nobody complained")
	}
	if s := (&Health{Hogs: 6, Holds: 20_000, Losses: 3}).String(); !strings.Contains(s, "1.50 in 10,000") {
		t.Error(s)
	}
}
