package dialect

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Token draws from a counter that is not behind the clock, in microseconds: where a
// failover or a crash has lost the last tokens, those that follow are greater all the same.
func (s *mysqlSession) Token() (Token, error) {
	t, err := s.token()
	return t, Fail(err)
}

func (s *mysqlSession) token() (t Token, err error) {
	var counted int64
	count := func() error {
		result, err := s.conn.ExecContext(context.Background(), `UPDATE latchkey_tokens
			SET number = LAST_INSERT_ID(GREATEST(number + 1, CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)))
			WHERE only_row = 1 AND CONNECTION_ID() = `+strconv.FormatInt(s.id, 10))
		if err == nil {
			counted, err = result.RowsAffected()
		}
		return err
	}
	if err := s.withTables(mysqlTokens+";\n"+MySQLFence, count); err != nil {
		return Token{}, err
	}
	if counted == 0 { // who made the table may have died before it made the row
		if _, err := s.conn.ExecContext(context.Background(), mysqlTokensRow); err != nil {
			return Token{}, err
		}
		if err := count(); err != nil {
			return Token{}, err
		}
	}
	if counted == 0 {
		return Token{}, errInterrupted
	}
	text, err := s.ask(context.Background(), "(SELECT CONCAT(system, ' ', LAST_INSERT_ID()) FROM latchkey_tokens WHERE only_row = 1)")
	if err != nil {
		return Token{}, err
	}
	system, number, _ := strings.Cut(text, " ")
	t.MySQL = true // the fence's words
	if t.System, err = strconv.ParseInt(system, 10, 64); err == nil {
		t.Number, err = strconv.ParseInt(number, 10, 64)
	}
	if err != nil {
		return Token{}, errNonsense
	}
	return t, nil
}

// mysqlFence is Fence's statement. MySQL assigns from left to right, so the comparison
// with what was there comes first.
func mysqlFence(key Key, t Token) string {
	return fmt.Sprintf("INSERT INTO latchkey_fence (key_space, key_id, system, timeline, lsn) VALUES (%d, %d, %d, %d, %d)"+
		" ON DUPLICATE KEY UPDATE"+
		" stale = system = %[3]d AND (timeline > %[4]d OR timeline = %[4]d AND lsn > %[5]d),"+
		" system = %[3]d, timeline = %[4]d, lsn = %[5]d, fenced_at = CURRENT_TIMESTAMP(6)",
		key.Space, key.ID, t.System, t.Epoch, t.Number)
}

// The tables that MySQL needs. A session makes them itself when it needs them.
const (
	mysqlClaims = `CREATE TABLE IF NOT EXISTS latchkey_claims (
	class   INT NOT NULL, -- of a namespace
	print   INT NOT NULL, -- of the secret that its keys are made with
	session VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- a lock that is held while it lives
	PRIMARY KEY (class, print, session)
) ENGINE = InnoDB`

	mysqlTokensRow = `INSERT IGNORE INTO latchkey_tokens (only_row, system, number) VALUES (1, FLOOR(RAND() * 9007199254740991), 0)`

	mysqlTokens = `CREATE TABLE IF NOT EXISTS latchkey_tokens (
	only_row TINYINT NOT NULL PRIMARY KEY CHECK (only_row = 1),
	system   BIGINT NOT NULL,
	number   BIGINT NOT NULL
) ENGINE = InnoDB;
` + mysqlTokensRow

	// MySQLFence is Fence's table.
	MySQLFence = `CREATE TABLE IF NOT EXISTS latchkey_fence (
	key_space SMALLINT NOT NULL,
	key_id    BIGINT NOT NULL,
	system    BIGINT NOT NULL, -- of latchkey_tokens
	timeline  BIGINT NOT NULL,
	lsn       BIGINT NOT NULL,
	fenced_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
	stale     BOOLEAN NOT NULL DEFAULT FALSE,
	PRIMARY KEY (key_space, key_id),
	CONSTRAINT latchkey_fence_stale CHECK (NOT stale)
) ENGINE = InnoDB`
)
