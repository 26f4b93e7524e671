//go:build !unix

package subprocess_test

const canFreeze = false
