package main

import (
	"context"
	"database/sql"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/urfave/cli/v3"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// databaseVariable is the environment variable with the address of the database.
// Other users of the machine can read the arguments of a process, but not its
// environment.
const databaseVariable = "DATABASE_URL"

// databaseFlag does not name databaseVariable as its source: the library would
// then show the address as the default value.
func databaseFlag() cli.Flag {
	return &cli.StringFlag{
		Name:        "db",
		Usage:       "`URL` of the database; better in the environment as " + databaseVariable + ", where ps does not show it",
		HideDefault: true,
	}
}

// A database is the pool of one command, and the sockets under it.
type database struct {
	*sql.DB
	sockets *sockets
	file    string // the path of SQLite's file; empty: another database, or in memory
}

// open opens the database that --db or DATABASE_URL names. It does not connect.
// No error holds the address, because it may hold a password. With creates a file
// of SQLite that does not exist is made.
func open(c *cli.Command, creates bool) (*database, error) {
	address := c.String("db")
	if address == "" {
		address = os.Getenv(databaseVariable)
	}
	if address == "" {
		return nil, exit(exitUsage, "there is no database: set %s, or pass --db", databaseVariable)
	}
	db, err := openAddress(address, c.Bool(leaseTableFlag))
	if err == nil && !creates && isMissing(db.file) {
		_ = db.Close()
		return nil, exit(exitNoDatabase, "there is no such file of SQLite: latchkey run makes it, or its path is mistyped")
	}
	return db, err
}

// openAddress opens the database of an address. The scheme decides on the
// driver. The driver's own form is accepted, too. With pooled the driver of
// PostgreSQL prepares no statements, so that a transaction pooler may be there.
func openAddress(address string, pooled bool) (*database, error) {
	d := &database{sockets: &sockets{}}
	scheme, _, _ := strings.Cut(address, ":")
	var err error
	switch {
	case scheme == "postgres", scheme == "postgresql", postgresSettings.MatchString(address):
		err = d.openPostgres(address, pooled)
	case scheme == "mysql", scheme == "mariadb":
		var u *url.URL
		if u, err = url.Parse(address); err == nil {
			err = d.openMySQL(mysqlDSN(u))
		}
	case mysqlAddress.MatchString(address):
		err = d.openMySQL(address)
	case scheme == "file":
		d.file = fileOf(address)
		d.DB, err = sql.Open("sqlite", address)
	case sqlitePath(address) != "":
		err = d.openSQLite(sqlitePath(address))
	default:
		err = os.ErrInvalid
	}
	if err != nil { // its text may quote the address
		return nil, exit(exitConfig, "the address of the database is not understood: it may be "+
			"postgres://user:password@host:port/database, mysql://user:password@host:port/database or sqlite:/path/to/file")
	}
	return d, nil
}

var (
	postgresSettings = regexp.MustCompile(`^\s*\w+\s*=`)     // host=… dbname=…
	mysqlAddress     = regexp.MustCompile(`@\w*\([^()]*\)/`) // user:password@tcp(host:port)/database
)

func (d *database) openPostgres(address string, pooled bool) error {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return err
	}
	config.DialFunc = d.sockets.remember(config.DialFunc)
	if pooled {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	d.DB = stdlib.OpenDB(*config)
	return nil
}

func (d *database) openMySQL(dsn string) error {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return err
	}
	config.Logger = &mysql.NopLogger{} // its lines name hosts
	config.DialFunc = d.sockets.remember((&net.Dialer{}).DialContext)
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	d.DB = sql.OpenDB(connector)
	return nil
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

// dial opens a network connection, as a driver does.
type dial = func(ctx context.Context, network, address string) (net.Conn, error)
