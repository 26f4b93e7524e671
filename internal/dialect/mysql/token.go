package mysql

import (
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/usertx"
)

// Token implements dialect.Session. It increments a counter that is never behind
// the clock, in microseconds. So tokens grow even if a crash has lost the last
// ones.
//
// After a failover the clock is another one, and may be behind. So the epoch
// rises when another server counts than before.
func (s *session) Token() (t dialect.Token, err error) {
	err = s.inSideTx(func(tx sideTx) error {
		return tx.withTables(usertx.FenceSchema().MySQL, func() error {
			return tx.transaction(func(tx sideTx) (err error) {
				t, err = tx.token()
				return err
			})
		})
	})
	if err != nil {
		return dialect.Token{}, err
	}
	return t, nil
}

// token returns the next token. The row of the counter is locked until the
// transaction ends, and the session lives meanwhile. So a later holder of a key
// gets a later token.
func (tx sideTx) token() (t dialect.Token, err error) {
	counted, err := tx.count()
	if err == nil && counted == 0 { // the process that made the table may have died before it made the row
		if err = tx.exec(usertx.MySQLTokensRow); err == nil {
			counted, err = tx.count()
		}
	}
	if err != nil {
		return dialect.Token{}, err
	}
	if counted == 0 {
		return dialect.Token{}, errInterrupted
	}
	var (
		mine bool
		name string
	)
	err = tx.conn.QueryRowContext(tx.ctx, "SELECT "+tx.mine()+", "+tx.s.serverName+", system_id, epoch, number FROM latchkey_tokens WHERE only_row = 1 LIMIT 1").
		Scan(&mine, &name, &t.System, &t.Epoch, &t.Number)
	if err == nil && !mine {
		err = errElsewhere
	}
	t.Here = tx.s.serverName + " = " + dialect.Quoted(name)
	t.MySQL = true // the fence's words
	return t, err
}

// count increments the counter.
func (tx sideTx) count() (int64, error) {
	return tx.change("UPDATE", fmt.Sprintf("latchkey_tokens SET epoch = epoch + (server_hash <> %[1]d), server_hash = %[1]d,"+
		" number = GREATEST(number + 1, UNIX_TIMESTAMP() * 1000000 + MICROSECOND(NOW(6))) WHERE only_row = 1", tx.s.server))
}
