package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jmoiron/sqlx"
)

// accountSchema has no unique constraint on purpose: that would hide what is done twice.
const accountSchema = `
CREATE TABLE effects (job_id bigint NOT NULL, attempt integer NOT NULL);
CREATE TABLE attempts (job_id bigint NOT NULL, attempt integer NOT NULL)`

// An account is what became of the jobs.
type account struct {
	Jobs     int `db:"jobs"`
	Hopeless int `db:"hopeless"` // of Jobs, those that can only fail
	Done     int `db:"done"`
	Dead     int `db:"dead"`
	Effects  int `db:"effects"`
	Changed  int `db:"changed"`  // jobs with an effect
	Attempts int `db:"attempts"` // begun
	Twice    int `db:"twice"`    // of Attempts, those that ran more than once under one number
	CutOff   int `db:"cut_off"`  // of Attempts, those that would have succeeded, and were not let

	kills, started int
	outcomes       map[string]int
	took, outage   time.Duration
}

// addJobs adds n jobs: of twenty, one each fails at first, panics at first, can
// only fail, and is of a kind that runs one at a time.
func addJobs(ctx context.Context, db *sqlx.DB, n int) error {
	_, err := db.ExecContext(ctx, `INSERT INTO jobs (id, kind, priority, max_attempts)
		SELECT i - $1::int / 2, -- half of the ids are negative
			CASE i % 20 WHEN 1 THEN 'flaky' WHEN 2 THEN 'panics' WHEN 3 THEN 'hopeless' WHEN 4 THEN 'single' ELSE 'good' END,
			i % 3, CASE i % 20 WHEN 3 THEN 3 ELSE 25 END
		FROM generate_series(1, $1::int) i`, n)
	if err != nil {
		return err
	}
	return execute(ctx, db.DB, "ANALYZE jobs") // as autovacuum does in a while: until then the planner sorts the whole table for each job
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

// verdict is nil if each job that could be done was, once.
func (a *account) verdict() error {
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

func (a *account) report(out io.Writer) error {
	fmt.Fprintf(out, "  %d jobs: %d done, %d dead (they can only fail), in %v\n", a.Jobs, a.Done, a.Dead, a.took.Round(10*time.Millisecond))
	fmt.Fprintf(out, "  %d processes, of which %d were killed with SIGKILL", a.started, a.kills)
	if a.outage > 0 {
		fmt.Fprintf(out, "; the database was killed once, and away for %v", a.outage)
	}
	fmt.Fprintf(out, "\n  %d attempts begun, %d cut off and made again, %d twice under one number\n", a.Attempts, a.CutOff, a.Twice)
	fmt.Fprintf(out, "  %d effects, of %d jobs", a.Effects, a.Changed)
	for _, outcome := range []string{"abandoned", "superseded"} {
		if n := a.outcomes[outcome]; n > 0 {
			fmt.Fprintf(out, "; %d attempts %s", n, outcome)
		}
	}
	fmt.Fprintln(out)
	if err := a.verdict(); err != nil {
		return err
	}
	fmt.Fprint(out, "  OK: nothing lost, nothing done twice.\n\n")
	return nil
}
