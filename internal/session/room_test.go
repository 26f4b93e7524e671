package session

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// A Session may take an eighth of its part of the room before it looks again, and
// one key while there are two for each Session.
func TestRoomSeen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		table              dialect.LockTable
		free, share, again int
	}{
		{dialect.LockTable{Size: 1000, Sessions: 8}, 600, 9, 15},
		{dialect.LockTable{Size: 1000, Sessions: 9}, 600, 8, 13},
		{dialect.LockTable{Size: 1000, Used: 584}, 16, 1, 15},
		{dialect.LockTable{Size: 1000, Used: 585}, 15, 0, 15},
		{dialect.LockTable{Size: 1000, Used: 700}, 0, 0, 15},
		{dialect.LockTable{Size: 2000, Sessions: 1000}, 1200, 0, 18},
		{dialect.LockTable{Size: 100_000, Sessions: 1000}, 60_000, 7, 64},
	} {
		r := room{tight: true}
		r.seen(tt.table, 5, 3)
		if want := (room{known: true, at: 3, held: 5, free: tt.free, share: tt.share, again: tt.again, tight: true}); r != want {
			t.Errorf("%+v: %+v, want %+v", tt.table, r, want)
		}
	}
}

// A statement requests as many keys as the room allows, and WithMaxHeld: here 90
// more, since ten are under way.
func TestLimitsOfTheRoom(t *testing.T) {
	withAges(t, func(t *testing.T, s *Session, _ *ageReader) {
		s.options.MaxHeld = 100
		c := s.slots[0].conn
		c.brings = 10
		s.slots = append(s.slots, newSlot(s)) // without a connection
		for name, tt := range map[string]struct {
			room     room
			surveyed bool
			want     keytable.Limits
		}{
			"not known":                 {room{}, true, keytable.Limits{Grants: 90, Beyond: errMaxHeld}},
			"a share for all":           {room{free: 1000, share: 90, held: 10}, true, keytable.Limits{Grants: 90, Beyond: errMaxHeld}},
			"a share for fewer":         {room{free: 1000, share: 89, held: 10}, false, keytable.Limits{Grants: 89}},
			"a share that is used up":   {room{free: 1000, share: 7, held: 3}, false, keytable.Limits{}},
			"a set after a look":        {room{free: 40, share: 5, held: 10}, true, keytable.Limits{Grants: 5, Stack: 10, Large: errFull}},
			"a set within WithMaxHeld":  {room{free: 1000, share: 5, held: 10}, true, keytable.Limits{Grants: 5, Stack: 90, Large: errFull}},
			"some were given back":      {room{free: 1000, share: 5, held: 50, again: 3}, false, keytable.Limits{Grants: 8}},
			"full, and just looked at":  {room{at: Now() - lookPause + 1}, true, keytable.Limits{Beyond: errFull}},
			"full, and looked at again": {room{at: Now() - lookPause}, true, keytable.Limits{}},
			"a share, just looked at":   {room{free: 1000, share: 5, held: 10, at: Now()}, false, keytable.Limits{Grants: 5}},
		} {
			tt.room.known = name != "not known"
			s.room, c.surveyed = tt.room, tt.surveyed
			var got keytable.Limits
			if s.limit(&got, c); got != tt.want {
				t.Errorf("%s: %+v, want %+v", name, got, tt.want)
			}
		}
	})
}
