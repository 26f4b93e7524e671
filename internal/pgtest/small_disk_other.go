//go:build !linux

package pgtest

import "os"

func (*smallDisk) available() bool { return false }

// launch is never called.
func (*smallDisk) launch(*home, string, []string, *os.ProcAttr) []string { return nil }
