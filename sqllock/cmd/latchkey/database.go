package main

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"

	"github.com/urfave/cli/v3"
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
		Usage:       "`URL` of the database: postgres://…, mysql://… or sqlite:/path/to/file; better in the environment as " + databaseVariable + ", where ps does not show it",
		HideDefault: true,
	}
}

// A database is the pool of one command.
type database struct {
	*sql.DB
	file string // the path of SQLite's file; empty: another database, or in memory

	prepares bool // by the address, pgx prepares statements
}

// open opens the database that --db or DATABASE_URL names. It does not connect.
// No error holds a part of the address, because it may hold a password. With
// creates a file of SQLite that does not exist is made. The driver would always
// make it, and an empty database has no lock and no fault.
func open(c *cli.Command, creates bool) (*database, error) {
	address := c.String("db")
	if address == "" {
		address = os.Getenv(databaseVariable)
	}
	if address == "" {
		return nil, exit(exitUsage, "there is no database: set %s, or pass --db", databaseVariable)
	}
	db, err := openAddress(address, c.Bool(leaseTableFlag))
	if err != nil || creates || db.file == "" {
		return db, err
	}
	if _, err := os.Stat(db.file); errors.Is(err, fs.ErrNotExist) {
		_ = db.Close()
		return nil, exit(exitNoDatabase, "there is no such file of SQLite: latchkey run makes it, or its path is mistyped")
	}
	return db, nil
}
