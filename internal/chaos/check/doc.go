// Package check decides whether a history of locks kept the guarantees:
//
//	report := check.Sweep(events)                                      // validity, notification, recovery
//	result, err := check.Linearize(events, check.Params{Lease: lease}) // grants and refusals
//	err = check.Tokens(rows)                                           // the fence, by what was stored
//
// Sweep is exact: it uses only what holders and clocks said. Linearize asks
// whether one lock server could have given all those answers. So it finds what no
// holder can see, such as a refusal of a free key.
//
// Neither raises a false alarm if calls of killed processes are missing.
package check
