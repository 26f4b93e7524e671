package integrations_test

import (
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/sdk/physical"
	"github.com/hashicorp/vault/sdk/physical/inmem"

	"github.com/latchkey-go/latchkey/examples/integrations/vaultlock"
	"github.com/latchkey-go/latchkey/sqllock"
)

func newStorage() physical.Backend { return must(inmem.NewInmem(nil, hclog.NewNullLogger())) }

// vaultNodes runs Vault's suite for backends with high availability.
func vaultNodes(t *testing.T, fleet fleet) {
	storage := newStorage()
	physical.ExerciseHABackend(t, vaultlock.New(storage, fleet(), "vault"), vaultlock.New(storage, fleet(), "vault"))
}

// The channel of the active node is closed when the lock is lost, and another node
// is active. A node that is told to stop waiting gets no channel and no error.
func TestVaultLoss(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	backend := vaultlock.New(newStorage(), locks, "vault")
	stop := make(chan struct{})
	lock := func(node string, stop chan struct{}) (physical.Lock, <-chan struct{}) {
		l := must(backend.LockWith("core/lock", node))
		return l, must(l.Lock(stop))
	}
	first, lost := lock("first", stop)
	close(stop) // the first one does not wait any more
	waiting, none := lock("second", stop)
	if err := waiting.Unlock(); err != nil || none != nil {
		t.Errorf("a node that stops waiting: %v, %v", none, err)
	}
	select {
	case <-lost:
		t.Error("the lock was lost before")
	default:
	}
	locks.Lose()
	<-lost
	second, _ := lock("second", nil)
	if err := first.Unlock(); err == nil {
		t.Error("Unlock of a lost lock: no error")
	}
	if held, node, err := first.Value(); !held || node != "second" || err != nil {
		t.Errorf("Value: %v, %q, %v", held, node, err)
	}
	if err := second.Unlock(); err != nil {
		t.Error(err)
	}
}
