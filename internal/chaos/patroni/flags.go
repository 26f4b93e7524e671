//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/round"
)

// options are what the flags ask for.
type options struct {
	each     int // faults of each kind
	rows     []int
	perRound int
	clusters int
	seed     uint64
	seeded   bool          // by -seed
	others   string        // the flags that were set, but for -seed and what does not change the rounds
	limit    time.Duration // no round begins later; 0: none
	dir      string        // absolute; empty: a temporary one
	lease    time.Duration
	settings cluster.Settings
	callers  int
	keys     int
}

// parse reads the flags.
func parse(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("patroni", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.each, "each", 3, "how often each kind of fault is injected")
	rows := flags.String("rows", "", "kinds of faults, by their numbers, separated by commas (all)")
	flags.IntVar(&o.perRound, "round", 24, "faults before the cluster is made anew, and the histories are checked")
	flags.IntVar(&o.clusters, "clusters", 1, "at work at once")
	flags.Uint64Var(&o.seed, "seed", rand.Uint64(), "of all random choices (a random one, or that of -out)")
	flags.DurationVar(&o.limit, "for", 0, "how long to begin rounds; a later run with the same -out does the rest (no limit)")
	flags.StringVar(&o.dir, "out", "", "directory for histories and results, where a later run with the same settings goes on (a temporary one, removed when all is well)")
	flags.DurationVar(&o.lease, "lease", 10*time.Second, "of each Session")
	flags.DurationVar(&o.settings.TTL, "ttl", 20*time.Second, "Patroni's ttl; Patroni 4 takes none that is shorter")
	flags.DurationVar(&o.settings.LoopWait, "loop", 2*time.Second, "Patroni's loop_wait")
	flags.DurationVar(&o.settings.RetryTimeout, "retry", 3*time.Second, "Patroni's retry_timeout")
	flags.BoolVar(&o.settings.Synchronous, "synchronous", false, "Patroni's synchronous_mode")
	flags.BoolVar(&o.settings.PreVote, "pre-vote", true, "etcd's pre-vote")
	flags.IntVar(&o.callers, "callers", 4, "in each of four processes")
	flags.IntVar(&o.keys, "keys", 12, "that they want")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	flags.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "seed":
			o.seeded = true
		case "out", "for":
		default:
			o.others += fmt.Sprintf(" -%s=%v", f.Name, f.Value)
		}
	})
	if flags.NArg() > 0 {
		return o, fmt.Errorf("what is %q? there are flags only", flags.Arg(0))
	}
	if min(o.each, o.perRound, o.clusters, o.callers, o.keys) < 1 || o.lease <= 0 {
		return o, errors.New("each, round, clusters, callers, keys and lease must be positive")
	}
	s := o.settings
	if s.TTL < time.Second || s.LoopWait < time.Second || s.RetryTimeout < time.Second || s.LoopWait+2*s.RetryTimeout > s.TTL {
		return o, errors.New("-ttl, -loop and -retry: loop + 2 retry <= ttl, each at least 1s")
	}
	if o.rows, err = kinds(*rows); err != nil {
		return o, err
	}
	if o.dir != "" {
		o.dir, err = filepath.Abs(o.dir)
		if strings.HasPrefix(o.dir, "/run/") {
			err = errors.New("-out cannot be below /run, which a sandbox hides")
		}
	}
	return o, err
}

// kinds reads a list of numbers of kinds; an empty one is all of them.
func kinds(list string) (all []int, err error) {
	if list == "" {
		for _, k := range round.Kinds {
			all = append(all, k.Number)
		}
		return all, nil
	}
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || !slices.ContainsFunc(round.Kinds, func(k round.Kind) bool { return k.Number == n }) {
			return nil, fmt.Errorf("-rows: there is no kind %q", text)
		}
		all = append(all, n)
	}
	return all, nil
}
