package mutants

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
)

// bound is how long a test or a campaign may take to catch a bug.
const bound = 10 * time.Minute

// A Result is what came of a mutant.
type Result struct {
	Test     Outcome
	Campaign Outcome // of a Mutant that has one
}

// An Outcome is what came of a command that should notice a bug.
type Outcome struct {
	Caught bool
	Took   time.Duration // with the build
	Output string
}

// A Bench is where bugs are tried: trees of which each is for one trial at a
// time. Tests run beside each other, one in each tree. A campaign runs alone.
type Bench struct {
	root  string
	trees chan string
	quiet sync.RWMutex // held for reading by tests, for writing by a campaign
}

// NewBench returns a Bench that tries bugs of the tree at root in these folders.
func NewBench(root string, trees ...string) *Bench {
	b := &Bench{root: root, trees: make(chan string, len(trees))}
	for _, tree := range trees {
		b.trees <- tree
	}
	return b
}

// inTree calls try with a tree that is equal to the one at root.
func (b *Bench) inTree(ctx context.Context, try func(tree string) error) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case tree := <-b.trees:
		defer func() { b.trees <- tree }()
		if err := mirror(b.root, tree); err != nil {
			return err
		}
		return try(tree)
	}
}

// Try plants m in a tree, and runs what should catch it. An error is one of the
// trial: a patch that does not apply, a tree that does not compile, a test that
// does not end within the bound.
func (b *Bench) Try(ctx context.Context, m Mutant) (v Result, err error) {
	err = b.inTree(ctx, func(tree string) error {
		if out, err := apply(ctx, tree, m.patch); err != nil {
			return fmt.Errorf("mutants: %s does not apply: %w\n%s", m.Name, err, out)
		}
		if v.Test, err = b.notices(ctx, m.Catch, tree); err != nil {
			return fmt.Errorf("mutants: with %s: %w", m.Name, err)
		}
		if len(m.Campaign.Words) == 0 {
			return nil
		}
		if v.Campaign, err = b.notices(ctx, m.Campaign, tree); err != nil {
			return fmt.Errorf("mutants: with %s: %w", m.Name, err)
		}
		// One that could not begin, or was broken off, has found nothing.
		v.Campaign.Caught = v.Campaign.Caught && violated(v.Campaign.Output)
		return nil
	})
	return v, err
}

// Without runs c in a tree without bugs.
func (b *Bench) Without(ctx context.Context, c Command) (o Outcome, err error) {
	err = b.inTree(ctx, func(tree string) error {
		o, err = b.notices(ctx, c, tree)
		return err
	})
	return o, err
}

// notices runs c in a tree when its turn has come.
func (b *Bench) notices(ctx context.Context, c Command, tree string) (Outcome, error) {
	if c.Dir == campaignDir {
		b.quiet.Lock()
		defer b.quiet.Unlock()
		return c.inTree(tree).notices(ctx, tree, bound)
	}
	b.quiet.RLock()
	defer b.quiet.RUnlock()
	return c.notices(ctx, tree, bound)
}

// inTree is a campaign that leaves its histories, which one that fails keeps, with the
// tree.
func (c Command) inTree(tree string) Command {
	return Command{slices.Concat(c.Words, []string{"-out", filepath.Join(tree, "histories")}), c.Dir}
}

// violations are the words by which a campaign reports a violation: of a row,
// in its table, or in its last error. A campaign that could not decide has none
// of them.
var violations = []string{
	"VIOLATED", faults.ErrViolated.Error(), "campaign: holders were told too late", "campaign: losses were reported",
	fleet.ErrLeftBehind.Error(), fleet.ErrProcessEnded.Error(), check.ErrSetInPart.Error(), check.ErrOverLimit.Error(), check.ErrOvertaken.Error(),
	check.ErrOverlap.Error(), check.ErrResurrected.Error(), check.ErrToldLate.Error(), check.ErrSlow.Error(),
	check.ErrLeaked.Error(), check.ErrLong.Error(), check.ErrFailed.Error(),
	check.ErrIllegal.Error(), check.ErrTokenFell.Error(), check.ErrTokenShared.Error(), check.ErrTokenChanged.Error(),
	check.ErrOrder.Error(), check.ErrWriteMissing.Error(), check.ErrWriteStored.Error(),
	check.ErrMarkFell.Error(), check.ErrAdvanceMissing.Error(), check.ErrAdvanceStored.Error(), check.ErrNotPassed.Error(), check.ErrMarkRead.Error(),
	check.ErrPaidTwice.Error(), check.ErrNotPaid.Error(), check.ErrDeclined.Error(), check.ErrTwoResponses.Error(),
	check.ErrOtherPayload.Error(), check.ErrStatus.Error(), check.ErrUnanswered.Error(),
	check.ErrTermToken.Error(), check.ErrLeadsOn.Error(), check.ErrLeaderless.Error(),
	check.ErrNotShown.Error(), check.ErrStillShown.Error(), check.ErrWrongSince.Error(), check.ErrWaitHidden.Error(), check.ErrWrongAge.Error(),
}

func violated(output string) bool {
	return slices.ContainsFunc(violations, func(words string) bool { return strings.Contains(output, words) })
}

// notices runs c in the tree at root. The bug is caught if c fails within the
// time.
func (c Command) notices(ctx context.Context, root string, within time.Duration) (Outcome, error) {
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	begun := time.Now()
	out, err := run(bounded, filepath.Join(root, c.Dir), c.Words[0], c.Words[1:]...)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return Outcome{}, ctx.Err()
	case bounded.Err() != nil:
		return Outcome{}, fmt.Errorf("%v: %w within %v\n%s", c, errLate, within, out)
	case err != nil && !errors.As(err, &exit):
		return Outcome{}, err
	case err != nil && (strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]")):
		return Outcome{}, fmt.Errorf("the tests do not compile:\n%s", out)
	case strings.Contains(out, "[no tests to run]"):
		return Outcome{}, fmt.Errorf("%v: there is no such test\n%s", c, out)
	}
	return Outcome{Caught: err != nil, Took: time.Since(begun), Output: out}, nil
}

// errLate: neither a failure nor a success.
var errLate = errors.New("it has not ended")
