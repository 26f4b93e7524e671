package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The commit that verify tests, in a checkout of its own: nobody changes it
// while the steps run.

// testedCommit returns the newest commit that changed more than the page of
// evidence. It returns an error if there are changes that are not committed.
func testedCommit(ctx context.Context) (string, error) {
	const others = ":(exclude)" + evidencePage
	changes, err := git(ctx, "status", "--porcelain", "--", ".", others)
	if err != nil {
		return "", err
	}
	if changes != "" {
		return "", errors.New("verify needs a commit: some files have changes that are not committed")
	}
	return git(ctx, "log", "-1", "--format=%H", "--", ".", others)
}

// checkOut returns a checkout of commit in dir. One that is there from an
// earlier call is made anew.
func checkOut(ctx context.Context, commit, dir string) (string, error) {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Dir(dir), 0o755)); err != nil {
		return "", err
	}
	top, err := git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return "", err
	}
	if _, err := git(ctx, "clone", "--quiet", "--no-checkout", top, dir); err != nil {
		return "", err
	}
	_, err = git(ctx, "-C", dir, "checkout", "--quiet", "--detach", commit)
	return dir, err
}

// git runs git and returns what it prints.
func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
