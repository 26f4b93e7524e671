//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "patroni: this needs root on Linux, for network namespaces of its own")
	os.Exit(1)
}
