//go:build linux

package round

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Minority counts what became of holders on the side of an old primary, when
// there was a new one. Each has its connections through the old primary's Unix
// socket, so they outlive every cut, and a lease that outlives the fault.
type Minority struct {
	Told     int // had been told of the loss: the old primary had stepped down
	Refused  int // went on to write on the new primary, and its fence refused
	Lost     int // went on to write on the old one, and that commit is not stored
	Kept     int // did, and it is stored: the old primary's database remained
	Rejected int // could not: one of the two primaries acknowledged nothing
}

// An oldWrite is a write on an old primary, made after the new one had
// acknowledged a mark. Only one of the two databases remains, so only one of the
// two commits may be stored.
type oldWrite struct {
	history.Write
	Mark int64
}

// marksSchema makes the table of marks.
const marksSchema = "CREATE TABLE marks (number bigint PRIMARY KEY); GRANT SELECT, INSERT ON marks TO PUBLIC"

// minorityProcess is the number of these holders in the history. It is none of
// a worker's.
const minorityProcess = 100

// minorityLease is longer than any fault.
const minorityLease = 10 * time.Minute

// A minority is such a holder.
type minority struct {
	run     *run
	outcome *Outcome
	pool    *sql.DB
	session *sqllock.Session
	lock    *sqllock.Lock
	number  int64 // of the lock
}

// holdOn makes a holder on n.
func (r *run) holdOn(ctx context.Context, n *cluster.Node, o *Outcome) (*minority, error) {
	pool, err := r.cluster.OpenHere(n)
	if err != nil {
		return nil, err
	}
	return r.holdIn(ctx, pool, o)
}

// holdIn makes a holder of a lock of pool and has it write once, so that it has
// its token.
func (r *run) holdIn(ctx context.Context, pool *sql.DB, o *Outcome) (m *minority, err error) {
	m = &minority{run: r, outcome: o, pool: pool}
	m.session, err = sqllock.Open(ctx, m.pool, sqllock.WithLease(minorityLease), sqllock.WithLogger(slog.New(slog.DiscardHandler)))
	if err == nil {
		m.lock, err = m.session.TryLock(ctx, sqllock.Namespace("minority").Key("old"))
	}
	if err == nil {
		m.number = r.number()
		err = m.write(ctx, m.pool).err
	}
	if err != nil {
		m.end()
		return nil, err
	}
	return m, nil
}

// number is one for a lock or a write of this process, unique in the history.
func (r *run) number() int64 {
	r.numbers++
	return minorityProcess*1_000_000_000 + r.numbers
}

// end gives the holder up. Its server may have ended long before.
func (m *minority) end() {
	if m.session != nil {
		_ = m.session.Close()
	}
	_ = m.pool.Close()
}

// goOn has the holder go on as if nothing had happened, when leader has become
// the primary.
func (m *minority) goOn(ctx context.Context, leader *cluster.Node) error {
	db, err := m.run.cluster.OpenAs(leader)
	if err != nil {
		return err
	}
	return errors.Join(m.goOnIn(ctx, db, 20*time.Second), db.Close())
}

// goOnIn is goOn with the pool of a new primary, which decides within d.
func (m *minority) goOnIn(ctx context.Context, db *sql.DB, d time.Duration) error {
	if m.lock.Err() != nil {
		m.outcome.Minority.Told++
		return nil
	}
	var w written
	err := fleet.Poll(ctx, d, "a new primary to decide on a write", func(ctx context.Context) (bool, error) {
		w = m.write(ctx, db)
		return decided(w), nil
	})
	if err != nil {
		if mark(ctx, db, m.run.number()) != nil {
			return errors.Join(err, w.err)
		}
		if w = m.write(ctx, db); !decided(w) {
			if mark(ctx, db, m.run.number()) == nil {
				m.run.violated("the new primary stores marks, and its fence does not decide on a write: %v", w.err)
			}
			return errors.Join(err, w.err)
		}
	}
	switch w.Result {
	case history.Fenced:
		m.outcome.Minority.Refused++
	case history.Lost: // the old primary has stepped down meanwhile
		m.outcome.Minority.Told++
		return nil
	default:
		m.run.violated("the new primary's fence let a holder of the old one write: %+v", w.Write)
	}
	switch err := mark(ctx, db, w.Number); {
	case err == nil:
		m.run.oldWrites = append(m.run.oldWrites, oldWrite{m.write(ctx, m.pool).Write, w.Number})
	case isMistake(err):
		m.run.violated("a statement of the campaign is wrong: %v", err)
	default:
		m.outcome.Minority.Rejected++
	}
	return nil
}

// decided reports whether a fence has let a write through, or refused it.
func decided(w written) bool {
	return w.Result == history.Fenced || w.Result == history.Lost || w.Result == history.OK
}

// mark stores a mark.
func mark(ctx context.Context, db *sql.DB, number int64) error {
	ctx, cancel := context.WithTimeout(ctx, worker.WriteTimeout)
	defer cancel()
	_, err := db.ExecContext(ctx, "INSERT INTO marks (number) VALUES ($1)", number)
	return err
}

// isMistake reports whether the server refused a statement as wrong, or its user
// as not allowed to make it.
func isMistake(err error) bool {
	refused := new(pgconn.PgError)
	return errors.As(err, &refused) && strings.HasPrefix(refused.Code, "42")
}

// marks returns the marks that are stored.
func marks(ctx context.Context, db *sql.DB) (all []int64, err error) {
	err = db.QueryRowContext(ctx, "SELECT coalesce(array_agg(number), '{}') FROM marks").Scan(pgtype.NewMap().SQLScanner(&all))
	return all, err
}

// A written is a write with its error.
type written struct {
	history.Write
	err error
}

// write makes a fenced write through db, and adds it to the history. It stores
// the row even after a refusal, as a careless holder would: the database must not
// let it.
func (m *minority) write(ctx context.Context, db *sql.DB) (w written) {
	w.Write = history.Write{Process: minorityProcess, Key: m.lock.Key().Int64(), Lock: m.number, Number: m.run.number(), Begin: history.Now()}
	ctx, cancel := context.WithTimeout(ctx, worker.WriteTimeout)
	defer cancel()
	w.Result = history.OK
	if w.err = m.commit(ctx, db, w.Write); w.err != nil {
		w.Result = worker.ResultOf(w.err)
	}
	w.End = history.Now()
	m.run.events = append(m.run.events, history.Event{Write: &w.Write})
	return w
}

func (m *minority) commit(ctx context.Context, db *sql.DB, w history.Write) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	fence := sqllock.Fence(ctx, tx, m.lock)
	return errors.Join(fence, worker.Store(ctx, tx, w), tx.Commit())
}

// remained counts for each of the writes whether it is stored, and returns those
// that are stored together with their mark.
func remained(all []Outcome, writes []oldWrite, rows []check.Stored, marks []int64) (both []oldWrite) {
	stored := map[int64]bool{}
	for _, row := range rows {
		stored[row.Number] = true
	}
	for _, w := range writes {
		o := at(all, w.Begin)
		switch {
		case stored[w.Number] && slices.Contains(marks, w.Mark):
			both = append(both, w)
		case w.Result != history.OK:
			o.Minority.Rejected++
		case !stored[w.Number]:
			o.Minority.Lost++
		default:
			o.Minority.Kept++
		}
	}
	return both
}
