package demo

import (
	"strings"
	"testing"
)

func TestDriverFor(t *testing.T) {
	tests := []struct {
		databaseURL, driver, dsn string // no dsn: it is not taken
	}{
		{"postgres://ann:secret@db.example/shop?sslmode=disable", pgxDriver, "postgres://ann:secret@db.example/shop?sslmode=disable"},
		{"postgresql://db.example/shop", pgxDriver, "postgresql://db.example/shop"},
		{"host=/run/db dbname=shop password='@tcp()'", pgxDriver, "host=/run/db dbname=shop password='@tcp()'"},

		{"mysql://ann:secret@db.example:3307/shop", mysqlDriver, "ann:secret@tcp(db.example:3307)/shop"},
		{"mysql://db.example/shop", mysqlDriver, "tcp(db.example)/shop"},
		{"mariadb://ann@[::1]:3307/shop?timeout=5s", mysqlDriver, "ann@tcp([::1]:3307)/shop?timeout=5s"},
		{"mysql://ann:%40secret%2F@db.example/shop", mysqlDriver, "ann:@secret/@tcp(db.example)/shop"},
		{"ann:secret@tcp(db.example:3307)/shop?timeout=5s", mysqlDriver, "ann:secret@tcp(db.example:3307)/shop?timeout=5s"},
		{"ann@unix(/run/db.sock)/shop", mysqlDriver, "ann@unix(/run/db.sock)/shop"},

		{"sqlite:/var/shop.db", sqliteDriver, "file:/var/shop.db?_pragma=busy_timeout(5000)"},
		{"sqlite:///var/shop.db", sqliteDriver, "file:/var/shop.db?_pragma=busy_timeout(5000)"},
		{"sqlite:/var/half?a#b%.db", sqliteDriver, "file:/var/half%3Fa%23b%25.db?_pragma=busy_timeout(5000)"},

		{"", "", ""},
		{"secret", "", ""},
		{"redis://ann:secret@db.example/0", "", ""},
		{"mysql://ann:secret@db.example:port/shop", "", ""},
		{"mysql://ann@db.example/shop?parseTime=secret", "", ""},
		{"ann@tcp(db.example)/shop?parseTime=secret", "", ""},
	}
	for _, tt := range tests {
		driver, dsn, err := driverFor(tt.databaseURL)
		switch {
		case tt.dsn == "" && err == nil:
			t.Errorf("%q is taken, as %q of %s", tt.databaseURL, dsn, driver)
		case tt.dsn == "" && strings.Contains(err.Error(), "secret"):
			t.Errorf("%q: the error shows it: %v", tt.databaseURL, err)
		case tt.dsn != "" && (err != nil || driver != tt.driver || dsn != tt.dsn):
			t.Errorf("%q: %q of %s, %v; want %q of %s", tt.databaseURL, dsn, driver, err, tt.dsn, tt.driver)
		}
	}
}
