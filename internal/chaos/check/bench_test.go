package check

import (
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// sizes are histories of about 200,000 calls.
var sizes = []struct {
	name          string
	workers, keys int
}{
	{"64 keys", 256, 64}, // some call is in flight for each key at nearly any moment
	{"1 key", 32, 1},
}

const calls = 200_000

func BenchmarkSweep(b *testing.B) {
	for _, size := range sizes {
		b.Run(size.name, func(b *testing.B) {
			events := simulateFleet(1, noDefect, calls, size.workers, size.keys)
			for b.Loop() {
				report := Sweep(events)
				if err := report.Err(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(report.Operations), "calls")
			}
		})
	}
}

// An operator looks at all locks once for each 200 calls.
func BenchmarkLooks(b *testing.B) {
	for _, size := range sizes {
		b.Run(size.name, func(b *testing.B) {
			events := simulateFleet(1, noDefect, calls, size.workers, size.keys)
			rs, err := index(events)
			if err != nil {
				b.Fatal(err)
			}
			for i := range calls / 200 {
				at := rs.last * history.Moment(i) / (calls / 200)
				events = append(events, history.Event{Serviced: history.Serviced{Look: &history.Look{Begin: at, End: at}}})
			}
			for b.Loop() {
				report, _ := Services(events, Left{}, registryParams()) // the looks see nothing
				b.ReportMetric(float64(report.Shown), "shown")
			}
		})
	}
}

func BenchmarkLinearize(b *testing.B) {
	for _, size := range sizes {
		b.Run(size.name, func(b *testing.B) {
			events := simulateFleet(1, noDefect, calls, size.workers, size.keys)
			for b.Loop() {
				v, err := Linearize(events, terms(time.Minute))
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(v.Operations), "operations")
				b.ReportMetric(float64(v.Excused), "excused")
			}
		})
	}
}
