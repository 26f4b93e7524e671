package pgtest

import (
	"os"
	"strings"
)

// serverEnv returns our environment without the PG… variables, which would
// change what PostgreSQL's programs connect to. It sets English as the language
// of messages.
func serverEnv() []string {
	env := []string{}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") && !strings.HasPrefix(kv, "LC_") {
			env = append(env, kv)
		}
	}
	return append(env, "LC_ALL=C")
}
