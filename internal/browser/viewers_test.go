//go:build !race

package browser_test

// viewers of TestLongLoad.
const viewers = 200
