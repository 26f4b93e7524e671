package databases

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A batch with as many keys as Room returns is carried out, even if each key is
// a look. A batch that is too long is rejected, and changes nothing.
func TestMySQLRoom(t *testing.T) {
	t.Parallel()
	server := mariadbtest.New(t, "--max-allowed-packet=64K")
	db := open(t, "mysql", server.Database(t))
	s := connectTo(t, db, false)
	room := s.(interface{ Room() int }).Room()
	if room < 300 {
		t.Errorf("Room returns %d keys", room)
	}
	var looks []dialect.Look
	var ids []int64
	for i := range int64(room) {
		looks = append(looks, dialect.Look{Keys: big(i - 1<<62), Want: 1})
		ids = append(ids, i-1<<62)
	}
	exchange(t, s, dialect.Batch{Looks: looks})
	if got := held(t, s); len(got) != room {
		t.Errorf("%d keys are held of %d", len(got), room)
	}
	exchange(t, s, dialect.Batch{Release: big(ids...)})
	all := exchange(t, s, dialect.Batch{Looks: []dialect.Look{{Keys: big(ids...), Want: room}}})
	if won := all.Looks[0].Won; len(won) != room {
		t.Errorf("of a large look won %d keys", len(won))
	}
	for range 2 {
		looks = append(looks, looks...)
	}
	if err := s.Exchange(&dialect.Batch{Looks: looks}); !isOfKind(err, dialect.Full) || !strings.Contains(err.Error(), "max_allowed_packet") {
		t.Errorf("Exchange of too many: %v, want a Failure of Kind Full that says why", err)
	}
	if got := held(t, s); len(got) != room {
		t.Errorf("%d keys are held, want %d", len(got), room)
	}
}

// A driver that allows shorter statements than the server sends nothing. The
// session goes on.
func TestMySQLTooLongForTheDriver(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	o.DSN += "?maxAllowedPacket=4096"
	s := process(t, o)
	lock := mustLock(t, s, sqllock.ID(-1))
	few := connect(t, o)
	for i := range int64(50) {
		exchange(t, few, dialect.Batch{Try: big(i + 1<<40)})
	}
	if got := held(t, few); len(got) != 50 {
		t.Errorf("%d keys are held, want 50", len(got))
	}
	var keys []sqllock.Key
	for i := range 1000 {
		keys = append(keys, sqllock.ID(int64(i)))
	}
	if _, err := s.TryAny(t.Context(), keys...); err == nil || !strings.Contains(err.Error(), "max_allowed_packet") {
		t.Errorf("TryAny of 1,000 keys: %v", err)
	}
	if err := lock.Err(); err != nil {
		t.Errorf("another lock: %v", err)
	}
}

// A wide limit that no one statement of the server carries is looked at by a few
// of them.
func TestMySQLSmallPackets(t *testing.T) {
	t.Parallel()
	const n = 900
	o := lockertest.Orders{Driver: "mysql", DSN: mariadbtest.New(t, "--max-allowed-packet=65536").Database(t)}
	full := ratelimit.AtMost(n, process(t, o), "exports")
	var first *sqllock.Lock
	for range n {
		lock, err := full.Acquire(t.Context(), "ada")
		must(t, err)
		first = cmp.Or(first, lock)
	}
	s := process(t, o)
	l := ratelimit.AtMost(n, s, "exports")
	before := s.Stats().Exchanges
	if _, err := l.Acquire(t.Context(), "ada"); !errors.Is(err, ratelimit.ErrBusy) {
		t.Errorf("a full limit: %v, want ErrBusy", err)
	}
	if n := s.Stats().Exchanges - before; n > 8 {
		t.Errorf("one rejection took %d statements", n)
	}
	mustUnlock(t, first)
	lock, err := l.Acquire(t.Context(), "ada")
	must(t, err)
	mustUnlock(t, lock)
}
