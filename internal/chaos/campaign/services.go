package campaign

import (
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// checkServices checks what callers of the packages around sqllock saw.
func (r *Result) checkServices(events []history.Event) (err error) {
	if r.settings.Services == 0 || !r.gathered {
		return nil
	}
	p := check.ServiceParams{Trouble: r.trouble(), Leaderless: leaderless(r.settings.Lease, r.busy), Kills: kills}
	if r.settings.Store.Registry() {
		times := registryTimes(r.settings.Lease)
		p.Registry = &times
	}
	r.Services, err = check.Services(events, r.left, p)
	return err
}

// leaderless bounds how long a key is without a leader, but for the time of
// faults. A lease may pass first, and the process that leads next may pause.
func leaderless(lease, busy time.Duration) time.Duration {
	return busy + lease + 500*time.Millisecond + worker.LongestPause + slack
}

// registryTimes are those of sessions with this lease. A lock or a wait that is
// as old as a heartbeat is in the record of the next one. A statement that takes
// longer than callTimeout has failed. What a process wrote of its waits stays for
// the lease after it was killed.
func registryTimes(lease time.Duration) check.RegistryTimes {
	written := 2*heartbeat(lease) + callTimeout
	return check.RegistryTimes{
		Written: written, Forgotten: written, Closed: time.Second + slack, Expired: lease + callTimeout,
		Off: callTimeout, Valid: agesValid,
	}
}

// agesValid is for how long HeldFor uses what it has read.
const agesValid = 2 * time.Second

// trouble returns the times from a fault of the fleet until every process served
// again.
func (r *Result) trouble() check.Trouble {
	var all []history.Fault
	for _, o := range r.outcomes {
		if !r.bystander(o.Fault) {
			if r.mayReachAll(o.Fault) {
				o.Fault.Process = 0
			}
			o.Fault.End += history.Moment(o.Recovery)
			all = append(all, o.Fault)
		}
	}
	return check.NewTrouble(all)
}

// servicesCoverage returns an error if callers of the packages around sqllock did
// nothing while there were faults.
func (r *Result) servicesCoverage() error {
	if r.Services == nil {
		return nil
	}
	if err := r.Services.Covered(); err != nil {
		return fmt.Errorf("%w: %w", errCoverage, err)
	}
	return nil
}
