package keys

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"strconv"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Among a few hundred thousand names two have the same 32-bit hash. A lock on
// one of them excludes the other, permanently. Their keys in package sqllock
// differ.
func TestThirtyTwoBitHashesCollide(t *testing.T) {
	hashes := map[string]func(*testing.T, *sql.DB) (key int64, one, other string){
		"hashtext": hashtextCollision,
		"crc32":    crc32Collision,
	}
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		s := session(t, driver, dsn)
		for name, collision := range hashes {
			key, one, other := collision(t, db)
			if one == other {
				t.Fatalf("%s: no collision", name)
			}
			conn := connection(t, db)
			expectBool(t, conn, "SELECT pg_try_advisory_lock("+strconv.FormatInt(key, 10)+")", true)
			if _, err := s.TryLock(t.Context(), sqllock.ID(key)); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("%s: TryLock of the other name: %v, want ErrHeld", name, err)
			}
			users := sqllock.Namespace("user")
			first, second := mustLock(t, s, users.Key(one)), mustLock(t, s, users.Key(other))
			unlock(t, first)
			unlock(t, second)
		}
	})
}

func hashtextCollision(t *testing.T, db *sql.DB) (key int64, one, other string) {
	t.Helper()
	err := db.QueryRow(`SELECT hashtext(name), min(name), max(name) FROM (SELECT 'user-' || n AS name FROM generate_series(1, 300000) n) names
		GROUP BY 1 HAVING count(*) > 1 LIMIT 1`).Scan(&key, &one, &other)
	if err != nil {
		t.Fatal(err)
	}
	return key, one, other
}

func crc32Collision(t *testing.T, _ *sql.DB) (key int64, one, other string) {
	t.Helper()
	seen := map[uint32]string{}
	for n := range 1_000_000 {
		sum := sha256.Sum256([]byte(strconv.Itoa(n)))
		name := hex.EncodeToString(sum[:8]) // like a random id
		crc := crc32.ChecksumIEEE([]byte(name))
		if earlier, ok := seen[crc]; ok {
			t.Logf("two of %d random names have the same CRC-32", n+1)
			return int64(crc), earlier, name
		}
		seen[crc] = name
	}
	t.Fatal("no collision among a million names")
	return 0, "", ""
}
