package simulation

import (
	"time"

	"pgregory.net/rapid"
)

// A plan says what happens in one run, in plain values. rapid draws plans at
// random. If a run breaks a rule, rapid makes the plan smaller.
type plan struct {
	Clients   int           // processes, each with a Session
	PerConn   int           // locks on a connection before a Session opens another one
	Async     bool          // WithAsyncUnlock
	Drift     int64         // how much faster the server's clock runs, in millionths
	Latency   time.Duration // of the network, each way
	IdleClose time.Duration // WithIdleClose; 0: without
	Steps     []step
}

// A step is an event that happens some time after the step before.
type step struct {
	After time.Duration
	Do    event
}

// An event is a call or a fault.
type event interface{ happen(w *world) }

// A profile is a kind of plan. It says which faults there may be.
type profile struct {
	name     string
	harmless bool            // no fault may cost a lock
	delays   []time.Duration // of requests, statements and replies
	ends     []outcome       // of statements
	faults   []drawEvent     // other than those of statements
}

// A drawEvent draws an event of one kind.
type drawEvent func(t *rapid.T) event

var profiles = []profile{
	{
		name: "harmless", harmless: true,
		delays: []time.Duration{0, time.Millisecond, 7 * time.Millisecond, 40 * time.Millisecond},
		ends:   []outcome{answered},
		faults: []drawEvent{drawClockStep, drawReopen},
	}, {
		name:   "late",
		delays: []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, time.Second, 1300 * time.Millisecond},
		ends:   []outcome{answered, answered, silence, driverStuck},
		faults: []drawEvent{drawClockStep, drawCut},
	}, {
		name:   "ended",
		delays: []time.Duration{0, time.Millisecond, 50 * time.Millisecond},
		ends:   []outcome{answered, replyLost, killedByStatement, failsHalfWay},
		faults: []drawEvent{drawKill, drawRestart, drawReopen},
	}, {
		name:   "suspended",
		delays: []time.Duration{0, 10 * time.Millisecond, 300 * time.Millisecond},
		ends:   []outcome{answered},
		faults: []drawEvent{drawSuspend, drawSuspend, drawClockStep},
	}, {
		name:   "everything",
		delays: []time.Duration{0, 10 * time.Millisecond, 300 * time.Millisecond, time.Second},
		ends:   []outcome{answered, answered, failsHalfWay, lockTableFull, replyLost, silence, driverStuck, killedByStatement},
		faults: []drawEvent{drawSuspend, drawCut, drawKill, drawRestart, drawReopen, drawClockStep},
	},
}

// plan returns a generator of plans.
func (p profile) plan() *rapid.Generator[plan] {
	return rapid.Custom(func(t *rapid.T) plan {
		least := rapid.SampledFrom([]int{1, 20, 40, 60}).Draw(t, "least") // without it rapid prefers short slices
		return plan{
			Clients:   rapid.IntRange(2, 3).Draw(t, "clients"),
			PerConn:   rapid.SampledFrom([]int{1000, 1, 2}).Draw(t, "per connection"),
			Async:     rapid.SampledFrom([]bool{false, false, false, true}).Draw(t, "async"),
			Drift:     rapid.SampledFrom([]int64{0, 1000, -1000}).Draw(t, "drift"),
			Latency:   pick(t, "latency", 10*time.Microsecond, 200*time.Microsecond, time.Millisecond, 5*time.Millisecond),
			IdleClose: pick(t, "idle close", 0, 0, time.Second, 1700*time.Millisecond),
			Steps:     rapid.SliceOfN(p.step(), least, 80).Draw(t, "steps"),
		}
	})
}

// step returns a generator of steps. Five in eight are calls.
func (p profile) step() *rapid.Generator[step] {
	return rapid.Custom(func(t *rapid.T) step {
		after := pick(t, "after", 0, time.Millisecond, 5*time.Millisecond, 30*time.Millisecond, 100*time.Millisecond, 400*time.Millisecond)
		switch rapid.IntRange(0, 7).Draw(t, "kind") {
		case 4:
			return step{after, p.drawStatementFaults(t)}
		case 5:
			return step{after, rapid.SampledFrom(p.faults).Draw(t, "fault")(t)}
		case 6:
			return step{after, quiet{pick(t, "for", time.Second, 999*time.Millisecond, 1001*time.Millisecond, 1700*time.Millisecond, 2500*time.Millisecond)}}
		default:
			return step{after, drawCall(t)}
		}
	})
}

// pick draws one of durations. rapid prefers the first when it makes a plan
// smaller.
func pick(t *rapid.T, label string, durations ...time.Duration) time.Duration {
	return rapid.SampledFrom(durations).Draw(t, label)
}

func drawClient(t *rapid.T) int { return rapid.IntRange(0, 2).Draw(t, "client") }

// drawnOperations has each operation as often as calls should use it. Plain locks
// come first.
var drawnOperations = []operation{
	opTry, opLock, opTryAny, opLockAny, opDo, opTry, opLock, opTryAny,
	opTryRead, opRead, opTryAll, opLockAll, opTryEach, opTryEach, opTryEach,
}

// drawCall draws a call.
func drawCall(t *rapid.T) event {
	return call{
		Client:  drawClient(t),
		Op:      rapid.SampledFrom(drawnOperations).Draw(t, "op"),
		Keys:    rapid.SliceOfN(rapid.IntRange(0, len(contendedKeys)-1), 1, 3).Draw(t, "keys"),
		Timeout: pick(t, "timeout", 0, time.Millisecond, 20*time.Millisecond, 200*time.Millisecond, 2*time.Second, 4*time.Second),
		Hold:    pick(t, "hold", 0, 5*time.Millisecond, 50*time.Millisecond, 400*time.Millisecond, 2*time.Second, 4*time.Second),
		Token:   rapid.SampledFrom([]tokenTime{noToken, tokenFirst, tokenLast}).Draw(t, "token"),
	}
}

// drawStatementFaults draws the faults of up to three statements.
func (p profile) drawStatementFaults(t *rapid.T) event {
	fault := rapid.Custom(func(t *rapid.T) statementFault {
		return statementFault{
			Request: pick(t, "request", p.delays...),
			Run:     pick(t, "run", p.delays...),
			Reply:   pick(t, "reply", p.delays...),
			End:     rapid.SampledFrom(p.ends).Draw(t, "end"),
		}
	})
	return statementFaults{drawClient(t), rapid.SliceOfN(fault, 1, 3).Draw(t, "faults")}
}

func drawCut(t *rapid.T) event {
	return partition{drawClient(t), pick(t, "for", 50*time.Millisecond, 500*time.Millisecond, lease/2, lease, 2*lease)}
}

func drawKill(t *rapid.T) event { return kill{drawClient(t)} }

func drawRestart(t *rapid.T) event {
	return restart{pick(t, "down", 0, 100*time.Millisecond, time.Second, 3*time.Second)}
}

func drawSuspend(t *rapid.T) event {
	return suspend{drawClient(t), pick(t, "for", 200*time.Millisecond, lease/2, lease*9/10, lease, 10*lease)}
}

// drawClockStep draws a step of the server's clock. The promise allows for a step
// forward of a tenth of the lease (σ).
func drawClockStep(t *rapid.T) event {
	return clockStep{pick(t, "by", lease/10, lease/100, -lease/10)}
}

func drawReopen(t *rapid.T) event {
	return reopen{drawClient(t), pick(t, "pause", 0, 10*time.Millisecond, time.Second)}
}
