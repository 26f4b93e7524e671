package mutants

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// A place is a folder for the copy of the tree in which bugs are planted. It
// stays for the next run, because the go command's cache knows packages by their
// folders. A lock that ends with the process keeps other runs out.
type place struct {
	dir  string
	lock *os.File
}

// openPlace returns the first place of the user's cache that is free.
func openPlace() (*place, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("mutants: %w", err)
	}
	return openPlaceIn(filepath.Join(cache, "latchkey", "planted"))
}

func openPlaceIn(parent string) (*place, error) {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, fmt.Errorf("mutants: %w", err)
	}
	for n := 0; ; n++ {
		dir := filepath.Join(parent, strconv.Itoa(n))
		lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("mutants: %w", err)
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			_ = lock.Close() // another run is at work there
			continue
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("mutants: %w", err)
		}
		return &place{dir, lock}, nil
	}
}

// close makes the place free for other runs.
func (p *place) close() error { return p.lock.Close() }
