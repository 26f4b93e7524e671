package election_test

import (
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

// Three processes campaign, and leaders exit, are killed, and freeze. Two never
// lead at once. A leader that wakes does not call itself leader. What leaders
// write is in the order of their terms.
func TestTakeOver(t *testing.T) {
	ways := []struct {
		name string
		end  func(t *testing.T, leader *candidate)
		mend func(t *testing.T, f *fleet, leader *candidate) // called when another has taken over
	}{
		{"exit", func(_ *testing.T, leader *candidate) { leader.Ask() }, replaceExited},
		{"kill -9", func(_ *testing.T, leader *candidate) { _ = leader.Kill() }, replace},
		{"freeze, lease 2 s", freezeLeader, wake},
	}
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, driver)
			for _, way := range ways {
				var times []time.Duration
				for range takeOvers {
					times = append(times, f.takeOver(t, way.end, way.mend))
				}
				slices.Sort(times)
				t.Logf("%s: taken over after %v (median of %d; %v to %v)", way.name,
					times[len(times)/2].Round(100*time.Microsecond), len(times), times[0], times[len(times)-1])
			}
			f.checkWork(t)
			f.stop(t)
			f.history.check(t)
		})
	}
}

func freezeLeader(t *testing.T, leader *candidate) {
	t.Helper()
	if err := pgtest.FreezeProcess(leader.PID()); err != nil {
		t.Fatal(err)
	}
}

func replace(t *testing.T, f *fleet, leader *candidate) {
	t.Helper()
	<-leader.read
	delete(f.candidates, leader.who)
	f.start(t)
}

func replaceExited(t *testing.T, f *fleet, leader *candidate) {
	t.Helper()
	replace(t, f, leader)
	if err := leader.Wait(); err != nil {
		t.Errorf("a leader that was asked to end: %v", err)
	}
}

// wake wakes a frozen leader, which must find that it has lost the key.
func wake(t *testing.T, _ *fleet, leader *candidate) {
	t.Helper()
	before := len(leader.ends())
	if err := pgtest.ThawProcess(leader.PID()); err != nil {
		t.Fatal(err)
	}
	lockertest.Eventually(t, "a leader that was frozen notices the loss", func() bool { return len(leader.ends()) > before })
	if cause := leader.ends()[before]; cause != sqllock.ErrLost.Error() {
		t.Errorf("cause for a leader that was frozen: %s", cause)
	}
}

// A fleet is three candidates on one database.
type fleet struct {
	driver, dsn string
	db          *sql.DB
	history     history
	candidates  map[int]*candidate
	started     int
}

func newFleet(t *testing.T, driver string) *fleet {
	t.Helper()
	f := &fleet{driver: driver, dsn: pgtest.Database(t), candidates: make(map[int]*candidate)}
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
func (f *fleet) leader(t *testing.T, moment time.Time, not int) (who int, at time.Time) {
	t.Helper()
	lockertest.Eventually(t, "a process leads", func() (ok bool) {
		who, at, ok = f.history.since(moment, not)
		return ok
	})
	return who, at
}

// takeOver ends the leader's term in some way, and returns the time until
// another process led. After it there are three candidates again.
func (f *fleet) takeOver(t *testing.T, end func(*testing.T, *candidate), mend func(*testing.T, *fleet, *candidate)) time.Duration {
	t.Helper()
	who, _ := f.leader(t, time.Now(), 0)
	lockertest.Eventually(t, "the leader has written", func() bool {
		return dbtest.Number(t, f.db, "SELECT count(*) FROM work WHERE token = $1", f.history.token(who)) > 0
	})
	leader, began := f.candidates[who], time.Now()
	end(t, leader)
	_, at := f.leader(t, began, who)
	mend(t, f, leader)
	return at.Sub(began)
}

// checkWork checks that no leader wrote after a later one.
func (f *fleet) checkWork(t *testing.T) {
	t.Helper()
	if n := dbtest.Number(t, f.db, `SELECT count(*) FROM (SELECT token, lag(token) OVER (ORDER BY id) AS before FROM work) d
		WHERE token < before`); n > 0 {
		t.Errorf("%d times a leader wrote after a later one", n)
	}
	if n := dbtest.Number(t, f.db, `SELECT count(DISTINCT token) FROM work`); n < 3*takeOvers {
		t.Errorf("only %d leaders wrote", n)
	}
	if n := dbtest.Number(t, f.db, `SELECT count(*) FROM (SELECT token FROM work GROUP BY token HAVING min(who) <> max(who)) d`); n > 0 {
		t.Errorf("%d tokens were of two leaders", n)
	}
}

// stop ends all candidates, and waits until their observations are in the
// history.
func (f *fleet) stop(t *testing.T) {
	t.Helper()
	for _, c := range f.candidates {
		c.Ask()
	}
	for _, c := range f.candidates {
		<-c.read
	}
}
