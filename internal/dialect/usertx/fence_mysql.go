package usertx

import (
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// mysqlHere returns a statement that fails unless Here of t holds, since no
// BIGINT holds the sum.
//
// It is apart from mysqlFence, which a replica repeats with
// binlog_format=STATEMENT, and a replica has another name. It reads no table,
// so the transaction has no snapshot yet when the fence waits for its row.
func mysqlHere(t dialect.Token) string {
	return "SELECT 9223372036854775807 + (NOT IFNULL(" + t.Here + ", 0))"
}

// mysqlFence returns the statement of Fence for MySQL.
//
// MySQL assigns from left to right, so the comparison with the old row comes
// first. For a later token its sum is one that no BIGINT holds. That is an
// error in every mode, while a session may switch the constraint off.
func mysqlFence(key dialect.Key, t dialect.Token) string {
	return fmt.Sprintf("INSERT INTO latchkey_fence (key_space, key_id, system_id, timeline, lsn) VALUES (%d, %d, %d, %d, %d)"+
		" ON DUPLICATE KEY UPDATE"+
		" stale = 9223372036854775807 + (system_id = %[3]d AND (timeline > %[4]d OR timeline = %[4]d AND lsn > %[5]d)) <> 9223372036854775807,"+
		" system_id = %[3]d, timeline = %[4]d, lsn = %[5]d, fenced_at = CURRENT_TIMESTAMP(6)",
		key.Space, key.ID, t.System, t.Epoch, t.Number)
}
