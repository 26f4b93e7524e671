package dialect

import "fmt"

// Token draws from a counter that is not behind the clock, in microseconds: where a
// crash has lost the last tokens, those that follow are greater all the same. After a failover
// the clock is another one, and may be behind: so the epoch rises whenever another server draws
// than the last time that the table knows of.
func (s *mysqlSession) Token() (t Token, err error) {
	err = s.errand(func(e errand) error {
		return e.withTables([]string{mysqlTokens, mysqlTokensRow, mysqlFenceTable}, func() error {
			return e.transaction(func(e errand) (err error) {
				t, err = e.token()
				return err
			})
		})
	})
	if err != nil {
		return Token{}, err
	}
	return t, nil
}

// token is the counter's next. Its row is locked from here on to the end of the transaction, and the
// session lives while it is: who holds a key later draws later.
func (e errand) token() (t Token, err error) {
	counted, err := e.count()
	if err == nil && counted == 0 { // who made the table may have died before it made the row
		if err = e.exec(mysqlTokensRow); err == nil {
			counted, err = e.count()
		}
	}
	if err != nil {
		return Token{}, err
	}
	if counted == 0 {
		return Token{}, errInterrupted
	}
	var (
		mine bool
		name string
	)
	err = e.conn.QueryRowContext(e.ctx, "SELECT "+e.mine()+", "+e.s.serverName+", system_id, epoch, number FROM latchkey_tokens WHERE only_row = 1 LIMIT 1").
		Scan(&mine, &name, &t.System, &t.Epoch, &t.Number)
	if err == nil && !mine {
		err = errElsewhere
	}
	t.Here = e.s.serverName + " = " + quoted(name)
	t.MySQL = true // the fence's words
	return t, err
}

// mysqlHere is a statement that fails where t's Here does not hold, since no BIGINT
// holds the sum. It is apart from mysqlFence: with binlog_format=STATEMENT a
// replica repeats that, and has another name. It reads no table, so the
// transaction has no snapshot yet when the fence waits for its row.
func mysqlHere(t Token) string {
	return "SELECT 9223372036854775807 + (NOT IFNULL(" + t.Here + ", 0))"
}

func (e errand) count() (int64, error) {
	return e.change("UPDATE", fmt.Sprintf("latchkey_tokens SET epoch = epoch + (server_hash <> %[1]d), server_hash = %[1]d,"+
		" number = GREATEST(number + 1, UNIX_TIMESTAMP() * 1000000 + MICROSECOND(NOW(6))) WHERE only_row = 1", e.s.server))
}

// mysqlFence is Fence's statement. MySQL assigns from left to right, so the comparison
// with what was there comes first. A row with a later token makes a sum that no BIGINT
// holds, which is an error in every mode; a session may switch the table's constraint off.
func mysqlFence(key Key, t Token) string {
	return fmt.Sprintf("INSERT INTO latchkey_fence (key_space, key_id, system_id, timeline, lsn) VALUES (%d, %d, %d, %d, %d)"+
		" ON DUPLICATE KEY UPDATE"+
		" stale = 9223372036854775807 + (system_id = %[3]d AND (timeline > %[4]d OR timeline = %[4]d AND lsn > %[5]d)) <> 9223372036854775807,"+
		" system_id = %[3]d, timeline = %[4]d, lsn = %[5]d, fenced_at = CURRENT_TIMESTAMP(6)",
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

	mysqlTokens = `CREATE TABLE IF NOT EXISTS latchkey_tokens (
	only_row    TINYINT NOT NULL PRIMARY KEY CHECK (only_row = 1),
	system_id   BIGINT NOT NULL,
	server_hash BIGINT NOT NULL, -- of the server that drew last
	epoch       BIGINT NOT NULL, -- rises when that changes
	number      BIGINT NOT NULL
) ENGINE = InnoDB`

	mysqlTokensRow = `INSERT IGNORE INTO latchkey_tokens (only_row, system_id, server_hash, epoch, number) VALUES (1, FLOOR(RAND() * 9007199254740991), 0, 0, 0)`

	// mysqlFenceTable is the table of Fence.
	mysqlFenceTable = `CREATE TABLE IF NOT EXISTS latchkey_fence (
	key_space SMALLINT NOT NULL,
	key_id    BIGINT NOT NULL,
	system_id BIGINT NOT NULL, -- of latchkey_tokens
	timeline  BIGINT NOT NULL, -- its epoch
	lsn       BIGINT NOT NULL, -- its number
	fenced_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
	stale     BOOLEAN NOT NULL DEFAULT FALSE,
	PRIMARY KEY (key_space, key_id),
	CONSTRAINT latchkey_fence_stale CHECK (NOT stale)
) ENGINE = InnoDB`
)
