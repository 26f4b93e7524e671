package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jmoiron/sqlx"
)

// accountSchema has no unique constraint: that would hide what is done twice.
const accountSchema = `
CREATE TABLE effects (job_id bigint NOT NULL, attempt integer NOT NULL);
CREATE TABLE attempts (job_id bigint NOT NULL, attempt integer NOT NULL)`

// An Account is what became of the jobs.
type Account struct {
	Jobs     int `db:"jobs"`
	Hopeless int `db:"hopeless"` // of Jobs, those that can only fail
	Done     int `db:"done"`
	Dead     int `db:"dead"`
	Effects  int `db:"effects"`
	Changed  int `db:"changed"`  // jobs with an effect
	Attempts int `db:"attempts"` // begun
	Twice    int `db:"twice"`    // of Attempts, those that ran more than once under one number
	CutOff   int `db:"cut_off"`  // of Attempts, those that would have succeeded, but were stopped

	Kills, started int
	Outcomes       map[string]int
	took, outage   time.Duration
}

// addJobs adds n jobs. Of twenty, one fails at first, one panics at first, one can
// only fail, and one is of a kind that runs one at a time.
func addJobs(ctx context.Context, db *sqlx.DB, n int) error {
	_, err := db.ExecContext(ctx, `INSERT INTO jobs (id, kind, priority, max_attempts)
		SELECT i - $1::int / 2, -- half of the ids are negative
			CASE i % 20 WHEN 1 THEN 'flaky' WHEN 2 THEN 'panics' WHEN 3 THEN 'hopeless' WHEN 4 THEN 'single' ELSE 'good' END,
			i % 3, CASE i % 20 WHEN 3 THEN 3 ELSE 25 END
		FROM generate_series(1, $1::int) i`, n)
	if err != nil {
		return err
	}
	return execute(ctx, db.DB, "ANALYZE jobs") // autovacuum will do it later; without statistics the planner sorts the whole table for each job
}

const takeAccount = `SELECT
	(SELECT count(*) FROM jobs) AS jobs,
	(SELECT count(*) FROM jobs WHERE kind = 'hopeless') AS hopeless,
	(SELECT count(*) FROM jobs WHERE status = 'done') AS done,
	(SELECT count(*) FROM jobs WHERE status = 'dead') AS dead,
	(SELECT count(*) FROM effects) AS effects,
	(SELECT count(DISTINCT job_id) FROM effects) AS changed,
	(SELECT count(*) FROM attempts) AS attempts,
	(SELECT count(*) - count(DISTINCT (job_id, attempt)) FROM attempts) AS twice,
	(SELECT count(*) FROM attempts a JOIN jobs j ON j.id = a.job_id WHERE j.kind <> 'hopeless'
		AND (j.kind NOT IN ('flaky', 'panics') OR a.attempt > 1)
		AND NOT EXISTS (SELECT FROM effects e WHERE e.job_id = a.job_id AND e.attempt = a.attempt)) AS cut_off`

// check returns nil if each job that could be done was done, once.
func (a *Account) check() error {
	switch good := a.Jobs - a.Hopeless; {
	case a.Effects > a.Changed:
		return fmt.Errorf("%d effects happened twice", a.Effects-a.Changed)
	case a.Twice > 0:
		return fmt.Errorf("%d attempts ran twice under one number", a.Twice)
	case a.Done != good || a.Effects != good || a.Dead != a.Hopeless:
		return errors.New("jobs were lost")
	}
	return nil
}

// Report prints the account. It fails if a job was lost or done twice.
func (a *Account) Report(out io.Writer) error {
	fmt.Fprintf(out, "  %d jobs: %d done, %d dead (these can only fail), in %v\n", a.Jobs, a.Done, a.Dead, a.took.Round(10*time.Millisecond))
	fmt.Fprintf(out, "  %d worker processes, of which %d were killed with kill -9", a.started, a.Kills)
	if a.outage > 0 {
		fmt.Fprintf(out, "; the database was killed once, and was away for %v", a.outage)
	}
	fmt.Fprintf(out, "\n  %d attempts began; %d were cut off and made again; %d ran twice under one number\n", a.Attempts, a.CutOff, a.Twice)
	fmt.Fprintf(out, "  %d effects of %d jobs", a.Effects, a.Changed)
	for _, outcome := range []string{"abandoned", "superseded"} {
		if n := a.Outcomes[outcome]; n > 0 {
			fmt.Fprintf(out, "; %d attempts %s", n, outcome)
		}
	}
	fmt.Fprint(out, "\n  An attempt is cut off by a kill, abandoned when its lock or the database is gone, superseded when another has the job.\n")
	if err := a.check(); err != nil {
		return err
	}
	fmt.Fprint(out, "  OK: nothing lost, nothing done twice.\n\n")
	return nil
}
