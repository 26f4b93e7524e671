package demo

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
)

// The limits of the recipe's plan "pro".
const (
	perKey        = 4
	perTenant     = 20
	keysPerTenant = perTenant / perKey
)

// writeAccounts writes a file with the accounts of n tenants, and returns their
// API keys.
func writeAccounts(name string, n int) (keys []string, err error) {
	type account struct {
		SHA256 string `json:"sha256"`
		ID     string `json:"id"`
		Tenant string `json:"tenant"`
		Plan   string `json:"plan"`
	}
	var list []account
	run := rand.Text()[:8] // another run may use the same database
	for tenant := range n {
		for key := range keysPerTenant {
			secret := rand.Text()
			sum := sha256.Sum256([]byte(secret))
			keys = append(keys, secret)
			list = append(list, account{
				SHA256: hex.EncodeToString(sum[:]),
				ID:     fmt.Sprintf("%s-%d-%d", run, tenant, key),
				Tenant: fmt.Sprintf("%s-%d", run, tenant),
				Plan:   "pro",
			})
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	return keys, os.WriteFile(name, text, 0o600)
}
