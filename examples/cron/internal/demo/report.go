package demo

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// schedules describe the jobs.
var schedules = []struct {
	job   string
	every time.Duration
	what  string
}{
	{Steady, time.Second, "robfig/cron, each second, takes 100ms"},
	{Slow, 2 * time.Second, "robfig/cron, each 2 seconds, takes 5s, longer than its interval"},
	{Panics, 3 * time.Second, "robfig/cron, each 3 seconds, panics"},
	{Locked, 2 * time.Second, "gocron with the Locker, each 2 seconds, takes 100ms"},
	{Elected, 2 * time.Second, "gocron with the Elector, each 2 seconds, takes 100ms"},
}

// A result is what became of a tick.
type result struct {
	ran      []string // the instances that ran it
	worked   int      // how many of these finished
	outlived int      // how many ticks a run outlived
	rejected map[string][]string
}

// results sorts events by job and tick.
func results(all []event) map[string]map[time.Time]*result {
	jobs := map[string]map[time.Time]*result{}
	for _, e := range all {
		if jobs[e.Job] == nil {
			jobs[e.Job] = map[time.Time]*result{}
		}
		tick := e.Tick.UTC()
		r := jobs[e.Job][tick]
		if r == nil {
			r = &result{rejected: map[string][]string{}}
			jobs[e.Job][tick] = r
		}
		r.note(e)
	}
	return jobs
}

func (r *result) note(e event) {
	instance := strconv.Itoa(e.Instance)
	switch e.What {
	case began:
		r.ran = append(r.ran, instance)
	case worked:
		r.worked++
	case rejected:
		r.rejected[e.Why] = append(r.rejected[e.Why], instance)
	case ended:
		r.outlived = e.Outlived
	}
}

// kept returns how many later ticks the run kept from being run.
func (r *result) kept() int {
	if r.worked < len(r.ran) { // killed, after a moment
		return 1
	}
	return r.outlived
}

// run says which instance ran the tick, and how the run ended.
func (r *result) run() string {
	switch {
	case len(r.ran) == 0:
		return "-"
	case r.worked < len(r.ran):
		return strings.Join(r.ran, ", ") + " (killed)"
	case r.outlived > 0:
		return fmt.Sprintf("%s (outlived %d ticks)", strings.Join(r.ran, ", "), r.outlived)
	}
	return strings.Join(r.ran, ", ")
}

// why says which instances were rejected.
func (r *result) why() string {
	var all []string
	for _, reason := range slices.Sorted(maps.Keys(r.rejected)) {
		instances := slices.Sorted(slices.Values(r.rejected[reason]))
		all = append(all, reason+": "+strings.Join(instances, " "))
	}
	return strings.Join(all, "; ")
}

const legend = `
TICK      when the job was due
RAN ON    the instance that ran the job: "-" for none, "(killed)" if the instance was killed in the run,
          "(outlived 2 ticks)" if the run went on while 2 more ticks were due
REJECTED  the instances that came for the tick and did not run the job:
          "held" while a run of the job goes on, "passed" when this tick or a later one has been run already`

func printTicks(out io.Writer, all []event) {
	fmt.Fprintln(out, legend)
	jobs := results(all)
	for _, s := range schedules {
		fmt.Fprintf(out, "\n%s: %s\n", s.job, s.what)
		table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(table, "  TICK\tRAN ON\tREJECTED")
		for _, tick := range slices.SortedFunc(maps.Keys(jobs[s.job]), time.Time.Compare) {
			r := jobs[s.job][tick]
			fmt.Fprintf(table, "  %s\t%s\t%s\n", tick.Format(time.TimeOnly), r.run(), r.why())
		}
		_ = table.Flush()
	}
}
