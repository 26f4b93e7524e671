// Command process is a process under test, and nothing else. Package older
// builds it with another version of the kit.
package main

import "github.com/latchkey-go/latchkey/internal/chaos/worker"

func main() { worker.Main() }
