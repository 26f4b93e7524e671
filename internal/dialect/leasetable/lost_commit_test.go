package leasetable

import (
	"strconv"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A database may lose a commit that it has acknowledged, in a failover to a
// standby that lagged. The session has ended then: a lock of that commit may be
// another session's.
func TestLostCommit(t *testing.T) {
	t.Parallel()
	db, open := leaseTable(t)
	for i, tt := range []struct {
		name string
		call func(*session) error
	}{
		{"heartbeat", func(s *session) error { return s.Exchange(&dialect.Batch{}) }},
		{"take", func(s *session) error {
			return s.Exchange(&dialect.Batch{Try: []dialect.Key{{Space: dialect.Bigint, ID: -1}}})
		}},
		{"release", func(s *session) error {
			return s.Exchange(&dialect.Batch{Release: []dialect.Key{{Space: dialect.Bigint, ID: -1}}})
		}},
		{"Held", func(s *session) error { _, err := s.Held(); return err }},
		{"Token", func(s *session) error { _, err := s.Token(); return err }},
	} {
		s := open()
		must(t, s.Exchange(&dialect.Batch{Try: []dialect.Key{{Space: dialect.Bigint, ID: int64(i)}}}))
		id := strconv.FormatInt(s.stamp.id, 10)
		execute(t, db, "UPDATE latchkey_sessions SET statement = statement - 1 WHERE id = "+id)
		execute(t, db, "DELETE FROM latchkey_locks WHERE session = "+id)
		if err := tt.call(s); !isGone(err) {
			t.Errorf("%s after a commit that was lost: %v, want Gone", tt.name, err)
		}
	}
}
