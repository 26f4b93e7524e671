package session

import (
	"database/sql"
	"testing"
	"time"
)

// A Session opens another connection if the dialect bounds the locks on one, the
// pool has a connection left for the proof, and no attempt has just failed.
func TestMayGrow(t *testing.T) {
	attempting(t, func(t *testing.T, db *sql.DB, sl *slot) {
		s, c := sl.s, new(connection)
		s.options.MaxConns, sl.conn = 3, c
		for _, tt := range []struct {
			perConn, locks int
			want           bool
		}{{0, 0, false}, {0, 9, false}, {2, 1, false}, {2, 2, true}} {
			if s.options.perConn, c.brings = tt.perConn, tt.locks; s.isFull(c) != tt.want {
				t.Errorf("%d locks of %d: full is %t", tt.locks, tt.perConn, !tt.want)
			}
		}
		for _, tt := range []struct {
			slots, pool int
			connecting  bool
			after       time.Duration // it may try again then; 0: no attempt has failed
			want        bool
		}{
			{1, 0, false, 0, true},
			{2, 0, false, 0, true},
			{3, 0, false, 0, false},
			{1, 2, false, 0, false},
			{1, 3, false, 0, true},
			{1, 0, true, 0, false},
			{1, 0, false, Now(), true},
			{1, 0, false, Now() + 1, false},
		} {
			db.SetMaxOpenConns(tt.pool)
			s.growAfter, sl.conn = tt.after, c
			if tt.connecting {
				sl.conn = nil
			}
			s.slots = nil
			for range tt.slots {
				s.slots = append(s.slots, sl)
			}
			if got := s.mayGrow(); got != tt.want {
				t.Errorf("%+v: %t", tt, got)
			}
		}
	})
}
