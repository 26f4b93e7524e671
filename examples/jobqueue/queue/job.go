package queue

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

// A Job is a row of the table, as its work sees it.
type Job struct {
	ID          int64     `db:"id"` // any number
	Kind        string    `db:"kind"`
	Args        string    `db:"args"`
	Priority    int       `db:"priority"`
	RunAt       time.Time `db:"run_at"`
	Attempt     int       `db:"attempt"` // 1 for the first
	MaxAttempts int       `db:"max_attempts"`
}

// columns are those of a Job.
const columns = "id, kind, args, priority, run_at, attempt, max_attempts"

// Kinds is what to do for jobs, by their kind.
type Kinds map[string]Kind

// A Kind is what to do for jobs of one kind.
type Kind struct {
	Work      Work          // required
	Timeout   time.Duration // ends the context of Work; 0: none
	Singleton bool          // at most one job of the kind runs at a time, in the whole fleet
}

// names is the names of all kinds, and of the singletons among them.
func (k Kinds) names() (all, singletons string) {
	if len(k) == 0 {
		panic("queue: Open needs kinds")
	}
	var names, single []string
	for name, kind := range k {
		if kind.Work == nil {
			panic("queue: a kind needs Work")
		}
		if names = append(names, name); kind.Singleton {
			single = append(single, name)
		}
	}
	return literal(names), literal(single)
}

// literal is names as PostgreSQL reads a text[]: unlike slices, every driver takes it.
func literal(names []string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	var quoted []string
	for _, name := range names {
		quoted = append(quoted, `"`+escape.Replace(name)+`"`)
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

// Work does a job, outside any transaction: it may take hours, and talk to others. Its
// context ends when the job may no longer be ours, with cause sqllock.ErrLost, and
// after the kind's timeout. It runs again after a crash in the midst of it: at least once.
//
// What must happen exactly once goes into the Effect that it returns, nil for
// none. An error or a panic is a failed attempt.
type Work func(ctx context.Context, job Job) (Effect, error)

// An Effect runs in the transaction that marks its job done: both happen or neither. It
// has five seconds, and may be called again after it was rolled back, so it changes nothing
// but tx, and leaves its end to the queue. An error or a panic is a failed attempt.
type Effect func(ctx context.Context, tx *sqlx.Tx) error

// An Outcome is how an attempt ended.
type Outcome int

// The outcomes.
const (
	Done       Outcome = iota + 1 // done, and its Effect with it
	Failed                        // it will be tried again, or is dead
	Superseded                    // somebody else has it now, or our earlier answer arrived after all
	Abandoned                     // its lock was lost, or we were told to stop: it will be tried again
)

// String is the outcome in words.
func (o Outcome) String() string {
	return [...]string{"none", "done", "failed", "superseded", "abandoned"}[o]
}

// Enqueue adds job and returns its id. tx is a transaction or a database; in a
// transaction the job is there if that commits. Of job, Kind is required; ID and
// Attempt are ignored, a zero RunAt is now, zero MaxAttempts are 25.
func Enqueue(ctx context.Context, tx sqlx.QueryerContext, job Job) (id int64, err error) {
	err = sqlx.GetContext(ctx, tx, &id, `INSERT INTO jobs (kind, args, priority, run_at, max_attempts)
		VALUES ($1, $2, $3, coalesce($4, now()), coalesce(nullif($5, 0), 25)) RETURNING id`,
		job.Kind, job.Args, job.Priority, sql.NullTime{Time: job.RunAt, Valid: !job.RunAt.IsZero()}, job.MaxAttempts)
	if err != nil {
		return 0, fmt.Errorf("queue: enqueue: %w", safe(err))
	}
	return id, nil
}
