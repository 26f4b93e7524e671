package session

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

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
	withSession(t, func(t *testing.T, s *Session, _ *ageReader) {
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

// A surveyor is a session that shows a lock table.
type surveyor struct {
	dialect.Session
	table dialect.LockTable
	err   error
}

func (s *surveyor) LockTable() (dialect.LockTable, error) { return s.table, s.err }

// The table is read once in a heartbeat, by one of the connections, and when
// requests wait for room.
func TestWhenTheRoomIsReadAgain(t *testing.T) {
	withSession(t, func(t *testing.T, s *Session, _ *ageReader) {
		s.options.Heartbeat = 2 * time.Second
		for _, tt := range []struct {
			ago               time.Duration // 0: it was never read
			beat, waits, want bool
		}{
			{0, true, false, true},
			{0, false, false, false},
			{time.Second, true, false, true},
			{time.Second - 1, true, false, false},
			{time.Second - 1, false, true, true},
		} {
			c := s.slots[0].conn
			c.surveyWanted, s.room.at = tt.waits, 0
			if tt.ago > 0 {
				s.room.at = Now() - tt.ago
			}
			if got := c.survey(tt.beat) != nil; got != tt.want {
				t.Errorf("%+v: read is %t", tt, got)
			}
		}
	})
}

// The log says when the table becomes full, and when less than half of it is in
// use again. It says so once. A statement that fails says neither.
func TestRoomIsLogged(t *testing.T) {
	withSession(t, func(t *testing.T, s *Session, _ *ageReader) {
		var log strings.Builder
		s.options.Log = slog.New(slog.NewTextHandler(&log, nil))
		const full, calm = "used=700 size=1000 limit=600", "room again"
		for i, tt := range []struct {
			used int
			err  error
			says string
		}{
			{used: 499},
			{used: 700, says: full},
			{used: 700},
			{used: 550},
			{used: 500},
			{err: errors.New("simulated")},
			{used: 499, says: calm},
			{err: &dialect.Failure{Kind: dialect.Full}, says: "denied"},
		} {
			c := s.slots[0].conn
			c.surveyWanted, c.session = true, &surveyor{table: dialect.LockTable{Size: 1000, Used: tt.used}, err: tt.err}
			e := c.survey(false)
			log.Reset()
			if say := e.complete(e.send()); say != nil {
				say()
			}
			if text := log.String(); (text == "") != (tt.says == "") || !strings.Contains(text, tt.says) {
				t.Errorf("look %d: the log says %q, want %q", i, text, tt.says)
			}
		}
	})
}
