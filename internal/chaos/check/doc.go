// Package check decides whether a history of locks kept what is promised:
//
//	report := check.Sweep(events)                                      // validity, notification, recovery
//	verdict, err := check.Linearize(events, check.Params{Lease: lease}) // grants and refusals
//	err = check.Tokens(rows)                                           // the fence, by what was stored
//
// Sweep is exact: it knows only what holders and clocks said. Linearize asks
// whether one lock server could have given all those answers, and so finds what
// no holder can see, such as a key that was refused although it was free.
// Neither alarms falsely where calls of killed processes left no line.
package check
