package election_test

import (
	"cmp"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// takeOvers is how many leaders end in each way.
const takeOvers = 5

// Three processes campaign. Leaders exit, are killed, and freeze. Then the
// database is stopped, killed and cut off. Two never lead at once. A leader that
// wakes, or whose database is away, does not call itself leader. What leaders
// write is in the order of their terms.
func TestLongTakeOver(t *testing.T) {
	dbtest.EachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		f := newFleet(t, driver, cluster.DSN(""))
		for range takeOvers {
			f.takeOver(t, (*candidate).Ask, f.replaceExited)
			f.takeOver(t, func(c *candidate) { _ = c.Kill() }, f.replace)
			f.takeOver(t, func(c *candidate) { _ = pgtest.FreezeProcess(c.PID()) }, f.wake)
		}
		f.outage(t, cluster.Stop, cluster.StartAgain)
		f.outage(t, cluster.Kill, cluster.StartAgain)
		f.outage(t, cluster.Freeze, cluster.Thaw)
		f.stop()
		f.check(t)
	})
}

// A fleet is three candidates on one database.
type fleet struct {
	driver, dsn string
	db          *sql.DB
	history     history
	candidates  map[int]*candidate
	started     int
}

func newFleet(t *testing.T, driver, dsn string) *fleet {
	t.Helper()
	f := &fleet{driver: driver, dsn: dsn, candidates: make(map[int]*candidate)}
	f.history.terms, f.history.causes = make(map[termID]*span), make(map[int][]string)
	f.db = dbtest.Open(t, driver, f.dsn)
	dbtest.Create(t, f.db, sqllock.FenceSchema(sqllock.PostgreSQL))
	dbtest.Execute(t, f.db, `CREATE TABLE work (id bigserial PRIMARY KEY, who int NOT NULL, token text COLLATE "C" NOT NULL)`)
	for range 3 {
		f.start(t)
	}
	return f
}

func (f *fleet) start(t *testing.T) {
	t.Helper()
	f.started++
	f.candidates[f.started] = startCandidate(t, &f.history, orders{Who: f.started, Driver: f.driver, DSN: f.dsn})
}

// leader waits until a process other than not leads after a moment.
func (f *fleet) leader(t *testing.T, moment time.Time, not int) (s span) {
	t.Helper()
	lockertest.Eventually(t, "a process leads", func() (ok bool) {
		s, ok = f.history.since(moment, not)
		return ok
	})
	return s
}

// writer waits until a leader has written, and returns it.
func (f *fleet) writer(t *testing.T) *candidate {
	t.Helper()
	s := f.leader(t, time.Now(), 0)
	lockertest.Eventually(t, "the leader has written", func() bool {
		return dbtest.Number(t, f.db, "SELECT count(*) FROM work WHERE token = $1", s.token) > 0
	})
	return f.candidates[s.who]
}

// takeOver ends the leader's term in some way, and calls mend when another
// process leads. After it there are three candidates again.
func (f *fleet) takeOver(t *testing.T, end func(*candidate), mend func(*testing.T, *candidate)) {
	t.Helper()
	leader, began := f.writer(t), time.Now()
	end(leader)
	f.leader(t, began, leader.who)
	mend(t, leader)
}

func (f *fleet) replace(t *testing.T, leader *candidate) {
	t.Helper()
	<-leader.read
	delete(f.candidates, leader.who)
	f.start(t)
}

func (f *fleet) replaceExited(t *testing.T, leader *candidate) {
	t.Helper()
	f.replace(t, leader)
	if err := leader.Wait(); err != nil {
		t.Errorf("a leader that was asked to end: %v", err)
	}
}

// wake wakes a frozen leader, which must find that it has lost the key.
func (f *fleet) wake(t *testing.T, leader *candidate) {
	t.Helper()
	before := len(f.history.ends(leader.who))
	if err := pgtest.ThawProcess(leader.PID()); err != nil {
		t.Fatal(err)
	}
	f.loses(t, leader, before)
}

// loses waits until one more term of leader has ended, by the loss of its lock.
func (f *fleet) loses(t *testing.T, leader *candidate, before int) {
	t.Helper()
	lockertest.Eventually(t, "the leader notices the loss", func() bool { return len(f.history.ends(leader.who)) > before })
	if cause := f.history.ends(leader.who)[before]; cause != sqllock.ErrLost.Error() {
		t.Errorf("cause: %s, want ErrLost", cause)
	}
}

// outage takes the database away until the leader has stepped down. Then a
// process leads again.
func (f *fleet) outage(t *testing.T, leave, back func() error) {
	t.Helper()
	leader := f.writer(t)
	before := len(f.history.ends(leader.who))
	if err := leave(); err != nil {
		t.Fatal(err)
	}
	f.loses(t, leader, before)
	moment := time.Now()
	if s, ok := f.history.since(moment, 0); ok {
		t.Errorf("process %d leads while the database is away", s.who)
	}
	if err := back(); err != nil {
		t.Fatal(err)
	}
	f.leader(t, moment, 0)
	lockertest.Eventually(t, "the pool has noticed", func() bool { return f.db.Ping() == nil })
}

// stop ends all candidates, and waits until their reports are in the history.
func (f *fleet) stop() {
	for _, c := range f.candidates {
		c.Ask()
	}
	for _, c := range f.candidates {
		<-c.read
	}
}

// check checks that no two processes led at once, that a later leader's token
// is the greater, and that no leader wrote after a later one.
func (f *fleet) check(t *testing.T) {
	t.Helper()
	spans := f.history.spans()
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	for i := 1; i < len(spans); i++ {
		a, b := spans[i-1], spans[i]
		if b.first <= a.last {
			t.Errorf("two led at once, for %v: %v and %v", time.Duration(min(a.last, b.last)-b.first), a.termID, b.termID)
		}
		if b.token <= a.token {
			t.Errorf("token %q after %q", b.token, a.token)
		}
	}
	for what, query := range map[string]string{
		"times a leader wrote after a later one": `SELECT count(*) FROM (SELECT token, lag(token) OVER (ORDER BY id) AS before FROM work) d WHERE token < before`,
		"tokens were of two leaders":             `SELECT count(*) FROM (SELECT token FROM work GROUP BY token HAVING min(who) <> max(who)) d`,
	} {
		if n := dbtest.Number(t, f.db, query); n > 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	if n := dbtest.Number(t, f.db, "SELECT count(DISTINCT token) FROM work"); n < 3*takeOvers {
		t.Errorf("only %d leaders wrote", n)
	}
}
