package dialect

import (
	"os"
	"strconv"
)

// Holder returns host/pid of this process, for people who read the tables.
func Holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return host + "/" + strconv.Itoa(os.Getpid())
}
