//go:build race

package browser_test

// viewers of TestLongLoad. The race detector makes each page many times dearer.
const viewers = 20
