package demo

import (
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

// The drivers' names in database/sql.
const (
	pgxDriver    = "pgx"
	mysqlDriver  = "mysql"
	sqliteDriver = "sqlite"
)

// driverFor returns the driver and its data source name for a DATABASE_URL. The
// scheme decides on the driver. The driver's own form of a data source name is
// accepted, too. The error does not show the URL, which may contain a password.
func driverFor(databaseURL string) (driver, dsn string, err error) {
	scheme, rest, _ := strings.Cut(databaseURL, ":")
	switch {
	case scheme == "postgres", scheme == "postgresql", postgresSettings.MatchString(databaseURL):
		return pgxDriver, databaseURL, nil
	case scheme == "mysql", scheme == "mariadb":
		dsn, err = mysqlDSN(databaseURL)
		return mysqlDriver, dsn, err
	case mysqlAddress.MatchString(databaseURL):
		_, err := mysql.ParseDSN(databaseURL)
		return mysqlDriver, databaseURL, withoutURL(err)
	case scheme == "sqlite":
		return sqliteDriver, sqliteDSN(strings.TrimPrefix(rest, "//")), nil
	}
	return "", "", errDatabaseURL
}

var (
	postgresSettings = regexp.MustCompile(`^\s*\w+\s*=`)     // host=… dbname=…
	mysqlAddress     = regexp.MustCompile(`@\w+\([^()]*\)/`) // user:password@tcp(host:port)/database

	errDatabaseURL = errors.New("DATABASE_URL is not understood: it may be postgres://user:password@host:port/database, " +
		"mysql://user:password@host:port/database or sqlite:/path/to/file; without it there is a throwaway SQLite file")
)

// mysqlDSN returns the driver's form of mysql://…. Parameters go to the driver.
func mysqlDSN(databaseURL string) (string, error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return "", withoutURL(err)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Params = map[string]string{}
	for name := range u.Query() {
		c.Params[name] = u.Query().Get(name)
	}
	dsn := c.FormatDSN()
	_, err = mysql.ParseDSN(dsn)
	return dsn, withoutURL(err)
}

// withoutURL returns errDatabaseURL instead of err, whose text may quote the URL.
func withoutURL(err error) error {
	if err != nil {
		return errDatabaseURL
	}
	return nil
}

// sqliteDSN returns the data source name of a file. A connection waits up to 5
// seconds for the transaction of another; SQLite's default is to fail at once.
func sqliteDSN(path string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(5000)"
}
