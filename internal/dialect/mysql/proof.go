package mysql

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
)

// A proof shows that locks of GET_LOCK on session exclude other connections to
// the same server. Otherwise it says what to change. It SETs nothing.
type proof struct {
	dbconn.Pair
	mayBeFed bool // the user answers for a server that another one feeds

	id, other int64 // of session's connection, and of witness's
}

// behindProxy is the reason to reject a proxy.
const behindProxy = "a proxy is between that shares the server's connections among its clients (ProxySQL, MaxScale or the like): connect to the server itself, or switch multiplexing and read/write splitting off for this user"

// run returns what session's server says about itself.
//
// It begins with that. A node of Galera outside of its cluster takes no other
// statement of the proof.
func (p *proof) run(ctx context.Context) (server, error) {
	server, err := dbconn.Within(ctx, p.Timeout, p.server)
	if err == nil {
		err = server.fit()
	}
	if err == nil && !p.mayBeFed {
		err = server.unfed()
	}
	if err == nil {
		err = p.tidy(ctx)
	}
	if err == nil {
		err = p.ownConnections(ctx)
	}
	if err == nil {
		err = p.exclusion(ctx)
	}
	return server, err
}

// tidy ends transactions that earlier users have left open on both connections.
// Otherwise the session would stay in one, and a round would commit the other.
func (p *proof) tidy(ctx context.Context) error {
	for _, conn := range []*sql.Conn{p.Session, p.Witness} {
		for _, statement := range []string{rollbackWork, "UNLOCK TABLES"} {
			if err := p.Exec(ctx, conn, statement); err != nil {
				return err
			}
		}
	}
	return nil
}

// server returns what session's server says about itself. The name of the database
// travels as hex digits, whatever the character set of the connection. It is in
// lower case if the server ignores case.
func (p *proof) server(ctx context.Context) (server server, err error) {
	var database sql.NullString
	err = p.Session.QueryRowContext(ctx, `SELECT VERSION(),
		HEX(CONVERT(IF(@@global.lower_case_table_names = 0, DATABASE(), LOWER(DATABASE())) USING utf8mb4))`).Scan(&server.version, &database)
	if err != nil {
		return server, err
	}
	if server.database, err = hex.DecodeString(database.String); err != nil {
		return server, dialect.ErrNonsense
	}
	server.mariadb = strings.Contains(strings.ToLower(server.version), "mariadb")
	if server.variables, err = p.shown(ctx, "VARIABLES", serverVariables); err != nil {
		return server, err
	}
	server.status, err = p.shown(ctx, "STATUS", serverStatus)
	return server, err
}

// shown returns those of the named variables that session's server has. Their
// names are in lower case.
func (p *proof) shown(ctx context.Context, what string, names []string) (map[string]string, error) {
	rows, err := p.Session.QueryContext(ctx, "SHOW GLOBAL "+what+" WHERE Variable_name IN ('"+strings.Join(names, "','")+"')")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := make(map[string]string)
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		values[strings.ToLower(name)] = value
	}
	return values, rows.Err()
}

// ownConnections checks that each connection keeps one of the server's own.
func (p *proof) ownConnections(ctx context.Context) (err error) {
	if p.id, _, err = p.ask(ctx, p.Session, "0"); err != nil {
		return err
	}
	if p.other, _, err = p.ask(ctx, p.Witness, "0"); err != nil {
		return err
	}
	return p.Apart(ctx, dbconn.Rounds, behindProxy, rollbackWork, func(ctx context.Context, conn *sql.Conn) (bool, error) {
		id, _, err := p.ask(ctx, conn, "0")
		if conn == p.Session {
			return id == p.id, err
		}
		return id == p.other && id != p.id, err
	})
}

// exclusion takes two random names at once, which old servers cannot, and has
// the witness ask for one of them.
func (p *proof) exclusion(ctx context.Context) error {
	name := func() string { return fmt.Sprintf("'latchkey.proof.%016x'", rand.Uint64()) } //nolint:gosec // not a secret
	one, two := name(), name()
	steps := []struct {
		conn *sql.Conn
		id   int64
		call string
		want string
	}{
		{p.Session, p.id, "GET_LOCK(" + one + ", 0)", "1"},
		{p.Witness, p.other, "GET_LOCK(" + one + ", 0)", "0"},
		{p.Session, p.id, "GET_LOCK(" + two + ", 0)", "1"},
		{p.Witness, p.other, "GET_LOCK(" + one + ", 0)", "0"},
		{p.Session, p.id, "RELEASE_LOCK(" + one + ")", "1"},
		{p.Witness, p.other, "GET_LOCK(" + one + ", 0)", "1"},
		{p.Witness, p.other, "RELEASE_LOCK(" + one + ")", "1"},
		{p.Session, p.id, "RELEASE_LOCK(" + two + ")", "1"},
	}
	for _, step := range steps {
		id, got, err := p.ask(ctx, step.conn, step.call)
		if err != nil {
			return err
		}
		if id != step.id {
			return dialect.Refuse(behindProxy)
		}
		if got != step.want {
			return dialect.Refuse("a lock taken on one connection did not exclude another, or two could not be held at once:" +
				" the server does not implement GET_LOCK as MySQL 5.7 does, or the pool's connections do not reach one server")
		}
	}
	return nil
}

// ask returns the connection that responded, and the value of an expression. An
// expression is always there, since some proxies respond themselves to a
// question for the connection alone.
func (p *proof) ask(ctx context.Context, conn *sql.Conn, expression string) (id int64, value string, err error) {
	type answer struct {
		id    int64
		value sql.NullString
	}
	a, err := dbconn.Within(ctx, p.Timeout, func(ctx context.Context) (a answer, err error) {
		err = conn.QueryRowContext(ctx, "SELECT CONNECTION_ID(), "+expression).Scan(&a.id, &a.value)
		return a, err
	})
	return a.id, a.value.String, err
}
