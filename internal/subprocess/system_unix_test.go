//go:build unix

package subprocess_test

const canFreeze = true
