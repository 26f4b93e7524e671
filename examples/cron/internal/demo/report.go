package main

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

// schedules are what the jobs are, for people.
var schedules = []struct {
	job   string
	every time.Duration
	what  string
}{
	{steady, time.Second, "robfig/cron, each second, takes 100ms"},
	{slow, 2 * time.Second, "robfig/cron, each 2 seconds, takes 5s: it outlives its tick"},
	{panics, 3 * time.Second, "robfig/cron, each 3 seconds, panics"},
	{locked, 2 * time.Second, "gocron with the Locker, each 2 seconds, takes 100ms"},
	{elected, 2 * time.Second, "gocron with the Elector, each 2 seconds, takes 100ms"},
}

// A fate is what became of a tick.
type fate struct {
	ran      []string // by which instances
	worked   int      // how many of these came to their end
	outlived int      // how many ticks a run outlived
	refused  map[string][]string
}

// fates sorts events by job and tick.
func fates(all []event) map[string]map[time.Time]*fate {
	jobs := map[string]map[time.Time]*fate{}
	for _, e := range all {
		if jobs[e.Job] == nil {
			jobs[e.Job] = map[time.Time]*fate{}
		}
		tick := e.Tick.UTC()
		f := jobs[e.Job][tick]
		if f == nil {
			f = &fate{refused: map[string][]string{}}
			jobs[e.Job][tick] = f
		}
		f.note(e)
	}
	return jobs
}

func (f *fate) note(e event) {
	instance := strconv.Itoa(e.Instance)
	switch e.What {
	case began:
		f.ran = append(f.ran, instance)
	case worked:
		f.worked++
	case refused:
		f.refused[e.Why] = append(f.refused[e.Why], instance)
	case ended:
		f.outlived = e.Outlived
	}
}

// kept is how many later ticks the run kept from being run.
func (f *fate) kept() int {
	if f.worked < len(f.ran) { // killed, after a moment
		return 1
	}
	return f.outlived
}

// run says who ran the tick, and how that ended.
func (f *fate) run() string {
	switch {
	case len(f.ran) == 0:
		return "nobody"
	case f.worked < len(f.ran):
		return strings.Join(f.ran, ", ") + " (killed)"
	case f.outlived > 0:
		return fmt.Sprintf("%s (outlived %d ticks)", strings.Join(f.ran, ", "), f.outlived)
	}
	return strings.Join(f.ran, ", ")
}

// why says who was refused the tick.
func (f *fate) why() string {
	var all []string
	for _, reason := range slices.Sorted(maps.Keys(f.refused)) {
		instances := slices.Sorted(slices.Values(f.refused[reason]))
		all = append(all, reason+": "+strings.Join(instances, " "))
	}
	return strings.Join(all, "; ")
}

func printTicks(out io.Writer, all []event) {
	fmt.Fprintln(out, "\nA refusal is \"held\" while a run of the job goes on, and \"passed\" when the tick, or a later one, was run before.")
	jobs := fates(all)
	for _, s := range schedules {
		fmt.Fprintf(out, "\n%s: %s\n", s.job, s.what)
		table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(table, "  TICK\tRAN ON\tREFUSED")
		for _, tick := range slices.SortedFunc(maps.Keys(jobs[s.job]), time.Time.Compare) {
			f := jobs[s.job][tick]
			fmt.Fprintf(table, "  %s\t%s\t%s\n", tick.Format(time.TimeOnly), f.run(), f.why())
		}
		_ = table.Flush()
	}
}
