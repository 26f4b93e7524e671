package report

import (
	"fmt"
	"slices"

	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/metered"
	"github.com/latchkey-go/latchkey/internal/bench/results"
)

// goals are the project's targets, in the order in which Print lists them.
func goals() []goal {
	return slices.Concat(pairGoals(), redisGoals(), processorGoals(), connectionGoals(), metricsGoals(), stackGoals(), inProcessGoals())
}

func pairGoals() []goal {
	type bound struct{ floor, goal float64 }
	bounds := []struct {
		callers int
		what    string
		pgx, pq bound
	}{
		{1, "pairs/s, 1 caller, against a connection per lock", bound{0.95, 1.1}, bound{1.5, 2}},
		{8, "pairs/s, 8 callers, against a connection per lock", bound{0.95, 1.1}, bound{2, 3}},
		{64, "pairs/s, 64 callers, against a connection per lock", bound{4.5, 8}, bound{11, 20}},
		{512, "pairs/s, 512 callers, against a connection per lock", bound{12, 22}, bound{28, 50}},
	}
	var all []goal
	for _, b := range bounds {
		all = append(all,
			goal{
				what: b.what + ", pgx", floor: b.pgx.floor, goal: b.pgx.goal, unit: times,
				measure: ratio("pairs", b.callers, locks.KitPgx, locks.PerConnectionPgx, results.Rate),
			},
			goal{
				what: b.what + ", lib/pq at its defaults", floor: b.pq.floor, goal: b.pq.goal, unit: times,
				measure: ratio("pairs", b.callers, locks.KitPQ, locks.PerConnectionPQ, results.Rate),
			})
	}
	return append(all,
		goal{
			what: "p99 of a pair, 64 callers, against a connection per lock, pgx", floor: 1. / 20, goal: 1. / 50, less: true, unit: fraction,
			measure: ratio("pairs", 64, locks.KitPgx, locks.PerConnectionPgx, results.P99),
		},
		goal{
			what: "p50 of a pair, 1 caller, against two SELECT 1, pgx", floor: 1.3, goal: 1.1, less: true, unit: times,
			measure: ratio("pairs", 1, locks.KitPgx, locks.SelectPgx, results.P50),
		},
		goal{
			what: "p50 of a pair, 1 caller, against two SELECT 1, lib/pq", floor: 1.3, goal: 1.1, less: true, unit: times,
			measure: ratio("pairs", 1, locks.KitPQ, locks.SelectPQ, results.P50),
		})
}

func redisGoals() (all []goal) {
	for _, which := range []clients{
		{"against the fastest Redis client of all", true},
		{"against the fastest Redis client that is not tuned by hand", false},
	} {
		all = append(all,
			goal{
				what: "pairs/s, 64 callers, " + which.what, floor: 1.5, goal: 3, unit: times,
				measure: toFastestRedis("pairs", 64, results.Rate, which),
			},
			goal{
				what: "pairs/s, 512 callers, " + which.what, floor: 3, goal: 6, unit: times,
				measure: toFastestRedis("pairs", 512, results.Rate, which),
			},
			goal{
				what: "pairs/s, 512 callers, 0.5 ms of network each way, " + which.what, floor: 1.7, goal: 3, unit: times,
				measure: toFastestRedis("delayed", 512, results.Rate, which),
			},
			goal{
				what:  "processor time of a pair, client and server, 512 callers, " + which.what,
				floor: 1. / 3, goal: 1. / 5, less: true, unit: fraction,
				measure: toFastestRedis("pairs", 512, whereMeasured(results.CPU), which),
			})
	}
	return all
}

// processorGoals are those of 64 and more callers once more, with one processor
// for the client.
func processorGoals() (all []goal) {
	const scenario, where = "one processor", " (client on one processor)"
	for _, of := range []struct {
		callers       int
		pgx, pq, peer [2]float64 // floor, goal
	}{
		{64, [2]float64{4.5, 8}, [2]float64{11, 20}, [2]float64{1.5, 3}},
		{512, [2]float64{12, 22}, [2]float64{28, 50}, [2]float64{3, 6}},
	} {
		what := fmt.Sprintf("pairs/s, %d callers, against ", of.callers)
		all = append(all,
			goal{
				what: what + "a connection per lock, pgx" + where, floor: of.pgx[0], goal: of.pgx[1], unit: times,
				measure: ratio(scenario, of.callers, locks.KitPgx, locks.PerConnectionPgx, results.Rate),
			},
			goal{
				what: what + "a connection per lock, lib/pq at its defaults" + where, floor: of.pq[0], goal: of.pq[1], unit: times,
				measure: ratio(scenario, of.callers, locks.KitPQ, locks.PerConnectionPQ, results.Rate),
			},
			goal{
				what: what + "the fastest Redis client of all" + where, floor: of.peer[0], goal: of.peer[1], unit: times,
				measure: toFastestRedis(scenario, of.callers, results.Rate, clients{tuned: true}),
			})
	}
	return all
}

func connectionGoals() []goal {
	return []goal{
		{
			what: "connections of a Session, 64 callers", floor: 1, goal: 1, less: true, always: true, unit: count,
			measure: figure("connections", 64, locks.KitPgx, NothingElseHeld, results.Extra("connections")),
		},
		{
			what: "connections of a Session, 1,000 locks held", floor: 1, goal: 1, less: true, always: true, unit: count,
			measure: figure("connections", 64, locks.KitPgx, ThousandHeld, results.Extra("connections")),
		},
		{
			what: "pairs/s, 64 callers, 5,000 locks held against 100", floor: 0.7, goal: 0.95, unit: times,
			measure: func(r *results.Results) results.Spread {
				return r.Find("held", locks.KitPgx, HeldByDefault, 5000).
					Ratio(r.Find("held", locks.KitPgx, HeldByDefault, 100), results.Rate)
			},
		},
		{
			what: "500 holders whose work needs a pool of 10: how many finish", floor: 500, goal: 500, always: true, unit: count,
			measure: figure("holders", 500, locks.KitPgx, HoldersApart, results.Extra("finished")),
		},
		{
			what: "500 holders whose work needs a pool of 10: p50 of the acquire", floor: 10e-3, goal: 3e-3, less: true, unit: milliseconds,
			measure: figure("holders", 500, locks.KitPgx, HoldersApart, results.P50),
		},
		{
			what: "refusals/s on a key held elsewhere, 64 callers, against a connection per lock, pgx", floor: 5, goal: 20, unit: times,
			measure: ratio("refusals", 64, locks.KitPgx, locks.PerConnectionPgx, results.Rate),
		},
	}
}

func metricsGoals() (all []goal) {
	for _, kind := range []metered.Kind{metered.OpenTelemetry, metered.Prometheus} {
		for _, q := range []struct {
			name   string
			figure results.Figure
		}{{"p50", results.P50}, {"p99", results.P99}} {
			all = append(all, goal{
				what: q.name + " of a pair through a limiter, 64 callers, " + string(kind) + " against no metrics", floor: 1.03, goal: 1.01, less: true, unit: times,
				measure: func(r *results.Results) results.Spread {
					return r.Find("metrics", Limiter, string(kind), 64).Ratio(r.Find("metrics", Limiter, string(metered.Off), 64), q.figure)
				},
			})
		}
	}
	return all
}

func stackGoals() (all []goal) {
	for _, single := range []string{StackOfUser, StackOfTotal} {
		all = append(all, goal{
			what: "time of a pair, 512 callers on 2 instances, three levels against " + single, floor: 1.6, goal: 1.3, less: true, unit: times,
			measure: func(r *results.Results) results.Spread {
				return r.Find("stacks", Limiter, single, 512).Ratio(r.Find("stacks", Limiter, StackOfThree, 512), results.Rate)
			},
		})
	}
	return all
}

func inProcessGoals() []goal {
	const refusal = "refusal in the same process, with the key's hash"
	all := []goal{
		{
			what: "refusal in the same process, the key's hash included", floor: 400, goal: 150, less: true, unit: nanoseconds,
			measure: figure("in-process", 1, refusal, "", results.Extra("ns")),
		},
		{
			what: "refusal in the same process: allocations", floor: 0, goal: 0, less: true, unit: count,
			measure: figure("in-process", 1, refusal, "", wholeAllocs("allocs")),
		},
		{
			what: "allocations of a pair, 512 callers, driver included, pgx", floor: 6, goal: 3, less: true, unit: count,
			measure: figure("in-process", 512, "pair on a Session, pgx", "", results.Extra("allocs")),
		},
		{
			what: "allocations of a pair, 512 callers, driver included, lib/pq", floor: 6, goal: 3, less: true, unit: count,
			measure: figure("in-process", 512, "pair on a Session, lib/pq", "", results.Extra("allocs")),
		},
	}
	for _, middleware := range []struct{ name, series string }{
		{"httpmw", "httpmw around a handler, on Memory"},
		{"grpcmw", "grpcmw around a unary handler, on Memory"},
	} {
		all = append(all,
			goal{
				what: middleware.name + " around a handler that does nothing, on Memory: more time than bare", floor: 2000, goal: 1000, less: true, unit: nanoseconds,
				measure: figure("in-process", 1, middleware.series, "", results.Extra("ns more")),
			},
			goal{
				what: middleware.name + " around a handler that does nothing, on Memory: more allocations than bare", floor: 8, goal: 5, less: true, unit: count,
				measure: figure("in-process", 1, middleware.series, "", wholeAllocs("allocs more")),
			})
	}
	return all
}
