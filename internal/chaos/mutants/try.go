package mutants

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
)

// A Result is what came of a mutant.
type Result struct {
	Test     Outcome
	Campaign Outcome // of a Mutant that has one
}

// An Outcome is what came of a command that should notice a bug.
type Outcome struct {
	Caught bool
	Output string
}

// Try plants m in a copy of the tree at root, made in dir, and runs what should
// catch it. An error is one of the trial: a patch that does not apply, a tree
// that does not compile.
func (m Mutant) Try(ctx context.Context, root, dir string) (v Result, err error) {
	if err := copyTree(root, dir); err != nil {
		return v, err
	}
	if out, err := apply(ctx, dir, m.patch); err != nil {
		return v, fmt.Errorf("mutants: %s does not apply: %w\n%s", m.Name, err, out)
	}
	if out, err := run(ctx, dir, "go", "build", "./..."); err != nil {
		return v, fmt.Errorf("mutants: with %s the tree does not compile: %w\n%s", m.Name, err, out)
	}
	if v.Test, err = m.Catch.notices(ctx, dir); err != nil {
		return v, fmt.Errorf("mutants: with %s: %w", m.Name, err)
	}
	if len(m.Campaign.Words) == 0 {
		return v, nil
	}
	if v.Campaign, err = m.Campaign.inTree(dir).notices(ctx, dir); err != nil {
		return v, fmt.Errorf("mutants: with %s: %w", m.Name, err)
	}
	// One that could not begin, or was broken off, has found nothing.
	v.Campaign.Caught = v.Campaign.Caught && violated(v.Campaign.Output)
	return v, nil
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
	fleet.ErrLeftBehind.Error(), check.ErrSetInPart.Error(), check.ErrOverLimit.Error(), check.ErrOvertaken.Error(),
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

// notices runs c in the tree at root. The bug is caught if c fails.
func (c Command) notices(ctx context.Context, root string) (Outcome, error) {
	out, err := run(ctx, filepath.Join(root, c.Dir), c.Words[0], c.Words[1:]...)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return Outcome{}, ctx.Err()
	case err != nil && !errors.As(err, &exit):
		return Outcome{}, err
	case err != nil && strings.Contains(out, "[build failed]"):
		return Outcome{}, fmt.Errorf("the tests do not compile:\n%s", out)
	case strings.Contains(out, "[no tests to run]"):
		return Outcome{}, fmt.Errorf("%v: there is no such test\n%s", c, out)
	}
	return Outcome{Caught: err != nil, Output: out}, nil
}
