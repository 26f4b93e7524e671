package pgtest

import (
	"os"
	"strings"
)

// serverEnv is our environment without the PG… variables, which would point
// PostgreSQL's programs elsewhere, and with messages in English.
func serverEnv() []string {
	env := []string{}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") && !strings.HasPrefix(kv, "LC_") {
			env = append(env, kv)
		}
	}
	return append(env, "LC_ALL=C")
}
