//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/round"
)

// What all rounds of one campaign share, however many runs it takes.
type shared struct {
	Seed          uint64
	Lease         time.Duration
	Cluster       cluster.Settings
	Callers, Keys int
	Pause, Look   time.Duration
}

// settle writes down what all rounds share, or compares it with what an earlier
// run wrote into the same directory. A run without -seed takes that one's.
func (o *options) settle() error {
	name := filepath.Join(o.dir, "campaign.json")
	before, err := os.ReadFile(name)
	if err == nil && !o.seeded {
		var s shared
		if err := json.Unmarshal(before, &s); err != nil {
			return err
		}
		o.seed = s.Seed
	}
	now, e := json.Marshal(shared{o.seed, o.lease, o.settings, o.callers, o.keys, round.Pause, round.Look})
	switch {
	case e != nil:
		return e
	case errors.Is(err, fs.ErrNotExist):
		return os.WriteFile(name, now, 0o600)
	case err != nil:
		return err
	case !bytes.Equal(before, now):
		return errors.New("-out has a campaign with other settings: " + string(before))
	}
	return nil
}
