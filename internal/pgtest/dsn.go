package pgtest

import (
	"net/url"
	"strconv"
	"strings"
)

// DSN returns the URL of a database of c, over TCP. An empty name means
// "postgres". The user is a superuser.
func (c *Cluster) DSN(database string) string { return tcpDSN(c.port, database) }

// socketDSN is DSN over the unix socket in dir.
func socketDSN(dir string, port int, database string) string {
	query := url.Values{
		"host":    {dir},
		"port":    {strconv.Itoa(port)},
		"sslmode": {"disable"},
	}
	return "postgres://" + superuser + "@/" + databaseOr(database) + "?" + query.Encode()
}

func tcpDSN(port int, database string) string {
	return "postgres://" + superuser + "@127.0.0.1:" + strconv.Itoa(port) + "/" + databaseOr(database) + "?sslmode=disable"
}

func databaseOr(name string) string {
	if name == "" {
		return "postgres"
	}
	return url.PathEscape(name)
}

// withDatabase returns dsn, a URL or a list of key=value, with another database.
func withDatabase(dsn, name string) string {
	u, err := url.Parse(dsn)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		return dsn + " dbname=" + name // of two the last counts
	}
	u.Path = "/" + name
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	u.RawQuery = query.Encode()
	return u.String()
}
