package main

import (
	"database/sql"
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// The addresses that are no URL: host=… dbname=… of PostgreSQL,
// user:password@tcp(host:port)/database of MySQL, and the path of a file. What
// has a colon is a file only behind sqlite:, or as C:\ on Windows: other words
// before a colon are mistyped schemes.
var (
	postgresSettings = regexp.MustCompile(`^\s*\w+\s*=`)
	mysqlAddress     = regexp.MustCompile(`@\w*\([^()]*\)/`)
	sqliteFile       = regexp.MustCompile(`^([A-Za-z]:[/\\])?[^:]+\.(db|sqlite|sqlite3)$`)
)

// openAddress opens the database of an address. With pooled the driver of
// PostgreSQL prepares no statements, so that a transaction pooler may be there.
// The error says which part of the address is wrong, and holds nothing of it.
func openAddress(address string, pooled bool) (d *database, err error) {
	d = &database{}
	scheme, rest, _ := strings.Cut(address, ":")
	path := strings.TrimPrefix(rest, "//")
	switch {
	case scheme == "postgres", scheme == "postgresql", postgresSettings.MatchString(address):
		d.DB, d.prepares, err = openPostgres(address, pooled)
	case scheme == "mysql", scheme == "mariadb":
		var u *url.URL
		if u, err = url.Parse(address); err == nil {
			d.DB, err = openMySQL(mysqlDSN(u))
		}
	case mysqlAddress.MatchString(address):
		d.DB, err = openMySQL(address)
	case scheme == "file":
		d.file = pathIn(address)
		d.DB, err = sql.Open("sqlite", address)
	case scheme == "sqlite" && path != "":
		d.file = path
	case sqliteFile.MatchString(address):
		d.file = address
	default:
		return nil, exit(exitConfig, "the address of the database begins with none of the schemes that are known: "+knownAddresses)
	}
	if d.DB == nil && d.file != "" { // a connection waits for the transaction of another one
		d.DB, err = sql.Open("sqlite", "file:"+(&url.URL{Path: d.file}).EscapedPath()+"?_pragma=busy_timeout(5000)")
	}
	if d.file == ":memory:" {
		d.file = ""
	}
	if err != nil {
		return nil, exit(exitConfig, "the address of the database is not understood: %s", complaint(err))
	}
	return d, nil
}

func openPostgres(address string, pooled bool) (db *sql.DB, prepares bool, err error) {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, false, err
	}
	mode := &config.DefaultQueryExecMode
	prepares = *mode == pgx.QueryExecModeCacheStatement || *mode == pgx.QueryExecModeDescribeExec
	if pooled {
		*mode = pgx.QueryExecModeExec
	}
	return stdlib.OpenDB(*config), prepares, nil
}

func openMySQL(dsn string) (*sql.DB, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	config.Logger = &mysql.NopLogger{} // its lines name hosts
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// mysqlDSN returns the driver's form of mysql://…. Parameters go to the driver.
func mysqlDSN(u *url.URL) string {
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Params = map[string]string{}
	for name := range u.Query() {
		config.Params[name] = u.Query().Get(name)
	}
	return config.FormatDSN()
}

// pathIn returns the path in an address of the form "file:…", or "" for a
// database in memory.
func pathIn(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Query().Get("mode") == "memory" {
		return ""
	}
	path, err := url.PathUnescape(u.Opaque)
	if err != nil {
		return ""
	}
	return u.Path + path // one of them is empty
}

const knownAddresses = "it may be postgres://user:password@host:port/database, " +
	"mysql://user:password@host:port/database or sqlite:/path/to/file"

const badCertificate = "sslrootcert, sslcert or sslkey names no file that can be read; sslcert and sslkey go together"

const badCharacter = "the user, the password or a parameter has a character that a URL may not have, such as a space or a %: " +
	"write it as % and two hexadecimal digits, which are %20 and %25 for these two"

// complaints have a part of what a parser says of an address, and what a person
// has to correct. The first that fits counts.
var complaints = []struct{ said, advice string }{
	{"port", "the port is no number from 1 to 65535; or the user or the password has one of / ? # : @, for which to write %2F, %3F, %23, %3A or %40"},
	{"in host", "the host has a character that a host may not have, or a bracket of it is missing"},
	{"spaces", badCharacter},
	{"percent-encoded", badCharacter},
	{"sslmode", "sslmode is none of disable, allow, prefer, require, verify-ca and verify-full"},
	{"unknown config name", "tls is none of true, false, skip-verify and preferred"},
	{"target_session_attrs", "target_session_attrs is none of any, read-write, read-only, primary, standby and prefer-standby"},
	{"service", "the service, or the file of services, cannot be read"},
	{"CA", badCertificate},
	{"ssl", badCertificate},
	{"cert", badCertificate},
}

// complaint says what is wrong with an address that a parser has rejected with
// err. Its words are its own, since those of err may quote the address.
func complaint(err error) string {
	var parse *url.Error
	said, advice := err.Error(), "a parameter has a wrong value or none, or a part is missing: "+knownAddresses
	if errors.As(err, &parse) {
		said, advice = parse.Err.Error(), badCharacter
	} else if i := strings.LastIndex(said, "`: "); i >= 0 { // pgx quotes the address before that
		said = said[i:]
	}
	for _, c := range complaints {
		if strings.Contains(said, c.said) {
			return c.advice
		}
	}
	return advice
}
