package sqllock_test

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// takeOvers is how often a leader goes, in each way.
const takeOvers = 5

// Three processes campaign, and leaders exit, are killed, and freeze. Nobody leads
// beside another, a leader that wakes does not call itself one, and what leaders
// write is in the order of their terms.
func TestCampaignTakeOver(t *testing.T) {
	ways := []struct {
		name string
		end  func(t *testing.T, leader *candidate)
		mend func(t *testing.T, e *election, leader *candidate) // when the next has taken over
	}{
		{"exit", func(t *testing.T, leader *candidate) { _ = leader.stdin.Close() }, replaceExited},
		{"kill -9", func(_ *testing.T, leader *candidate) { _ = leader.cmd.Process.Kill() }, replace},
		{"freeze, lease 2 s", freezeLeader, wake},
	}
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			e := newElection(t, driver)
			for _, way := range ways {
				var times []time.Duration
				for range takeOvers {
					times = append(times, e.takeOver(t, way.end, way.mend))
				}
				slices.Sort(times)
				t.Logf("%s: taken over after %v (median of %d; %v to %v)", way.name,
					times[len(times)/2].Round(100*time.Microsecond), len(times), times[0], times[len(times)-1])
			}
			e.checkDeeds(t)
			e.stop(t)
			e.book.check(t)
		})
	}
}

func freezeLeader(t *testing.T, leader *candidate) {
	t.Helper()
	if err := pgtest.FreezeProcess(leader.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
}

func replace(t *testing.T, e *election, leader *candidate) {
	t.Helper()
	<-leader.ended
	delete(e.candidates, leader.who)
	e.start(t)
}

func replaceExited(t *testing.T, e *election, leader *candidate) {
	t.Helper()
	replace(t, e, leader)
	if code := leader.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("a leader that was told to exit ended with %d", code)
	}
}

// wake wakes a frozen leader, which must find that it has lost the key.
func wake(t *testing.T, _ *election, leader *candidate) {
	t.Helper()
	before := len(leader.ends())
	if err := pgtest.ThawProcess(leader.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	lockertest.Eventually(t, "a leader that was frozen is told", func() bool { return len(leader.ends()) > before })
	if cause := leader.ends()[before]; cause != sqllock.ErrLost.Error() {
		t.Errorf("cause for a leader that was frozen: %s", cause)
	}
}

// An election is three candidates on one database.
type election struct {
	driver, dsn string
	db          *sql.DB
	book        book
	candidates  map[int]*candidate
	started     int
}

func newElection(t *testing.T, driver string) *election {
	t.Helper()
	e := &election{driver: driver, dsn: pgtest.Database(t), candidates: make(map[int]*candidate)}
	e.db = open(t, driver, e.dsn)
	create(t, e.db, sqllock.FenceSchema(sqllock.PostgreSQL))
	execute(t, e.db, `CREATE TABLE deeds (id bigserial PRIMARY KEY, who int NOT NULL, token text COLLATE "C" NOT NULL)`)
	for range 3 {
		e.start(t)
	}
	return e
}

func (e *election) start(t *testing.T) {
	t.Helper()
	e.started++
	e.candidates[e.started] = startCandidate(t, &e.book, candidacy{Who: e.started, Driver: e.driver, DSN: e.dsn})
}

// leader waits until somebody else than one leads after a moment.
func (e *election) leader(t *testing.T, moment time.Time, not int) (who int, at time.Time) {
	t.Helper()
	lockertest.Eventually(t, "somebody leads", func() (ok bool) {
		who, at, ok = e.book.since(moment, not)
		return ok
	})
	return who, at
}

// takeOver ends the leader's term in some way, and returns after how long another led.
// There are three candidates again after it.
func (e *election) takeOver(t *testing.T, end func(*testing.T, *candidate), mend func(*testing.T, *election, *candidate)) time.Duration {
	t.Helper()
	who, _ := e.leader(t, time.Now(), 0)
	lockertest.Eventually(t, "the leader has written", func() bool {
		return number(t, e.db, "SELECT count(*) FROM deeds WHERE token = $1", e.book.token(who)) > 0
	})
	leader, began := e.candidates[who], time.Now()
	end(t, leader)
	_, at := e.leader(t, began, who)
	mend(t, e, leader)
	return at.Sub(began)
}

// checkDeeds checks that no write came after one of a later leader.
func (e *election) checkDeeds(t *testing.T) {
	t.Helper()
	if n := number(t, e.db, `SELECT count(*) FROM (SELECT token, lag(token) OVER (ORDER BY id) AS before FROM deeds) d
		WHERE token < before`); n > 0 {
		t.Errorf("%d times a leader wrote after a later one", n)
	}
	if n := number(t, e.db, `SELECT count(DISTINCT token) FROM deeds`); n < 3*takeOvers {
		t.Errorf("only %d leaders wrote", n)
	}
	if n := number(t, e.db, `SELECT count(*) FROM (SELECT token FROM deeds GROUP BY token HAVING min(who) <> max(who)) d`); n > 0 {
		t.Errorf("%d tokens were of two leaders", n)
	}
}

// stop has all candidates exit, and waits until what they said is in the book.
func (e *election) stop(t *testing.T) {
	t.Helper()
	for _, c := range e.candidates {
		_ = c.stdin.Close()
	}
	for _, c := range e.candidates {
		<-c.ended
	}
}
