//go:build !race

package browser_test

// viewers of TestLoad.
const viewers = 200
