package dialect

import (
	"os"
	"strconv"
)

// Holder says for people who look into the table which process a session is of.
func Holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return host + "/" + strconv.Itoa(os.Getpid())
}
