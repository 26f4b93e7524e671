package simulation

import (
	"time"

	"pgregory.net/rapid"
)

// A simPlan is one run of the simulation, as plain values: rapid makes it, and
// makes it smaller when the run finds fault.
type simPlan struct {
	Clients    int           // processes, each with a Session
	PerConn    int           // locks on a connection before a Session opens another
	Async      bool          // WithAsyncUnlock
	Drift      int64         // how much faster the server's clock runs, in millionths
	Latency    time.Duration // of the network, each way
	TwoSecrets bool          // the last client makes keys with another secret
	Steps      []simStep
}

// A simStep is what happens so much time after the step before.
type simStep struct {
	After time.Duration
	Do    simEvent
}

type simEvent interface{ happen(w *simWorld) }

// A simProfile is a kind of plan: what may go wrong in it.
type simProfile struct {
	name     string
	harmless bool            // nothing that may cost a lock
	delays   []time.Duration // of requests, statements and replies
	ends     []simEnd        // of statements
	faults   []simFault      // beside what befalls statements
}

type simFault func(t *rapid.T) simEvent

var simProfiles = []simProfile{
	{
		name: "harmless", harmless: true,
		delays: []time.Duration{0, time.Millisecond, 7 * time.Millisecond, 40 * time.Millisecond},
		ends:   []simEnd{simAnswered, simAnswered, simFails, simFull},
		faults: []simFault{drawClockStep, drawReopen},
	}, {
		name:   "late",
		delays: []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, time.Second, 1300 * time.Millisecond},
		ends:   []simEnd{simAnswered, simAnswered, simSilence, simDeaf},
		faults: []simFault{drawClockStep, drawCut},
	}, {
		name:   "ended",
		delays: []time.Duration{0, time.Millisecond, 50 * time.Millisecond},
		ends:   []simEnd{simAnswered, simReplyLost, simKilled, simFails},
		faults: []simFault{drawKill, drawRestart, drawReopen},
	}, {
		name:   "suspended",
		delays: []time.Duration{0, 10 * time.Millisecond, 300 * time.Millisecond},
		ends:   []simEnd{simAnswered},
		faults: []simFault{drawSuspend, drawSuspend, drawClockStep},
	}, {
		name:   "everything",
		delays: []time.Duration{0, 10 * time.Millisecond, 300 * time.Millisecond, time.Second},
		ends:   []simEnd{simAnswered, simAnswered, simFails, simFull, simReplyLost, simSilence, simDeaf, simKilled},
		faults: []simFault{drawSuspend, drawCut, drawKill, drawRestart, drawReopen, drawClockStep},
	},
}

// plan draws a plan.
func (p simProfile) plan() *rapid.Generator[simPlan] {
	return rapid.Custom(func(t *rapid.T) simPlan {
		least := rapid.SampledFrom([]int{1, 20, 40, 60}).Draw(t, "least") // by itself rapid prefers short slices
		return simPlan{
			Clients:    rapid.IntRange(2, 3).Draw(t, "clients"),
			PerConn:    rapid.SampledFrom([]int{1000, 1, 2}).Draw(t, "per connection"),
			Async:      rapid.SampledFrom([]bool{false, false, false, true}).Draw(t, "async"),
			Drift:      rapid.SampledFrom([]int64{0, 1000, -1000}).Draw(t, "drift"),
			Latency:    pick(t, "latency", 10*time.Microsecond, 200*time.Microsecond, time.Millisecond, 5*time.Millisecond),
			TwoSecrets: rapid.Bool().Draw(t, "two secrets"),
			Steps:      rapid.SliceOfN(p.step(), least, 80).Draw(t, "steps"),
		}
	})
}

func (p simProfile) step() *rapid.Generator[simStep] {
	return rapid.Custom(func(t *rapid.T) simStep {
		after := pick(t, "after", 0, time.Millisecond, 5*time.Millisecond, 30*time.Millisecond, 100*time.Millisecond, 400*time.Millisecond)
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 4:
			return simStep{after, p.drawMishaps(t)}
		case 5:
			return simStep{after, rapid.SampledFrom(p.faults).Draw(t, "fault")(t)}
		default:
			return simStep{after, drawCall(t)}
		}
	})
}

// pick draws one of durations; rapid prefers the first when it shrinks.
func pick(t *rapid.T, label string, durations ...time.Duration) time.Duration {
	return rapid.SampledFrom(durations).Draw(t, label)
}

func drawClient(t *rapid.T) int { return rapid.IntRange(0, 2).Draw(t, "client") }

func drawCall(t *rapid.T) simEvent {
	return simCall{
		Client:  drawClient(t),
		Op:      rapid.SampledFrom([]simOp{simTry, simLock, simTryAny, simLockAny, simDo}).Draw(t, "op"),
		Keys:    rapid.SliceOfN(rapid.IntRange(0, len(simKeys)-1), 1, 3).Draw(t, "keys"),
		Timeout: pick(t, "timeout", 0, time.Millisecond, 20*time.Millisecond, 200*time.Millisecond, 2*time.Second, 4*time.Second),
		Hold:    pick(t, "hold", 0, 5*time.Millisecond, 50*time.Millisecond, 400*time.Millisecond, 2*time.Second, 4*time.Second),
		Token:   rapid.SampledFrom([]simTokenTime{simNoToken, simTokenFirst, simTokenLast}).Draw(t, "token"),
	}
}

func (p simProfile) drawMishaps(t *rapid.T) simEvent {
	fate := rapid.Custom(func(t *rapid.T) simFate {
		return simFate{
			Request: pick(t, "request", p.delays...),
			Run:     pick(t, "run", p.delays...),
			Reply:   pick(t, "reply", p.delays...),
			End:     rapid.SampledFrom(p.ends).Draw(t, "end"),
		}
	})
	return simMishaps{drawClient(t), rapid.SliceOfN(fate, 1, 3).Draw(t, "fates")}
}

func drawCut(t *rapid.T) simEvent {
	return simCut{drawClient(t), pick(t, "for", 50*time.Millisecond, 500*time.Millisecond, simLease/2, simLease, 2*simLease)}
}

func drawKill(t *rapid.T) simEvent { return simKill{drawClient(t)} }

func drawRestart(t *rapid.T) simEvent {
	return simRestart{pick(t, "down", 0, 100*time.Millisecond, time.Second, 3*time.Second)}
}

func drawSuspend(t *rapid.T) simEvent {
	return simSuspend{drawClient(t), pick(t, "for", 200*time.Millisecond, simLease/2, simLease*9/10, simLease, 10*simLease)}
}

// A step forward of a tenth of the lease is what the promise allows for (σ).
func drawClockStep(t *rapid.T) simEvent {
	return simClockStep{pick(t, "by", simLease/10, simLease/100, -simLease/10)}
}

func drawReopen(t *rapid.T) simEvent {
	return simReopen{drawClient(t), pick(t, "pause", 0, 10*time.Millisecond, time.Second)}
}
