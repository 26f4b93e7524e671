package databases

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

func TestMySQLFailures(t *testing.T) {
	t.Parallel()
	state := func(s string) (b [5]byte) {
		copy(b[:], s)
		return b
	}
	tests := []struct {
		name  string
		err   error
		kind  dialect.Kind
		state string
		says  string
	}{
		{"shutdown", &mysql.MySQLError{Number: 1053, SQLState: state("08S01")}, dialect.Gone, "08S01", "stopping"},
		{"killed connection", &mysql.MySQLError{Number: 1927, SQLState: state("70100")}, dialect.Gone, "70100", "error 1927"},
		{"silent for too long", &mysql.MySQLError{Number: 4031, SQLState: state("HY000")}, dialect.Gone, "HY000", "error 4031"},
		{"password", &mysql.MySQLError{Number: 1045, SQLState: state("28000")}, dialect.Gone, "28000", "the user or the password"},
		{"too many connections", &mysql.MySQLError{Number: 1040, SQLState: state("08004")}, dialect.Gone, "08004", "no connection to spare"},
		{"too many connections of an account", &mysql.MySQLError{Number: 1226, SQLState: state("42000")}, dialect.Gone, "42000", "no connection to spare"},
		{"too long for the driver, and not sent", mysql.ErrPktTooLarge, dialect.Full, "", "max_allowed_packet"},
		{"killed statement", &mysql.MySQLError{Number: 1317, SQLState: state("70100")}, dialect.Statement, "70100", "interrupted"},
		{"statement took too long", &mysql.MySQLError{Number: 3024, SQLState: state("HY000")}, dialect.Statement, "HY000", "error 3024"},
		{"a row lock took too long", &mysql.MySQLError{Number: 1205, SQLState: state("HY000")}, dialect.Statement, "HY000", "error 1205"},
		{"deadlock", &mysql.MySQLError{Number: 1213, SQLState: state("40001")}, dialect.Statement, "40001", "error 1213"},
		{"out of memory", &mysql.MySQLError{Number: 1041, SQLState: state("HY000")}, dialect.Full, "HY000", "no memory"},
		{"without a state", &mysql.MySQLError{Number: 1317}, dialect.Statement, "HY000", "error 1317"},
		{"wrapped", fmt.Errorf("tracing: %w", &mysql.MySQLError{Number: 1053}), dialect.Gone, "HY000", "stopping"},
		{"lost in a statement", mysql.ErrInvalidConn, dialect.Gone, "", "the connection was closed"},
	}
	for _, tt := range tests {
		if number := (*mysql.MySQLError)(nil); errors.As(tt.err, &number) {
			number.Message = "Access denied for user 'secret'@'10.0.0.1'"
		}
		err := dialect.Fail(tt.err)
		if !isOfKind(err, tt.kind) || errcode.SQLState(tt.err) != tt.state || errcode.SQLState(err) != tt.state || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, SQLSTATE %q; want Kind %d, SQLSTATE %q, and %q", tt.name, err, errcode.SQLState(err), tt.kind, tt.state, tt.says)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the text contains a secret: %v", tt.name, err)
		}
	}
}
