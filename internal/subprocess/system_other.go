//go:build !unix

package subprocess

import "errors"

// Freeze returns errors.ErrUnsupported: this system does not stop processes.
func (*Process) Freeze() error { return errors.ErrUnsupported }

// Thaw returns errors.ErrUnsupported.
func (*Process) Thaw() error { return errors.ErrUnsupported }
