package main

import (
	"context"
	"errors"
	"fmt"
)

// A fleet is the instances of the service and their database.
type fleet struct {
	database  *database
	instances []*process
}

const fleetSize = 2

// withFleet starts a fleet, calls f and stops it.
func withFleet(ctx context.Context, f flags, do func(*fleet) error) (err error) {
	db, err := openDatabase()
	if err != nil {
		return err
	}
	fleet := &fleet{database: db}
	defer func() { err = errors.Join(err, fleet.stop(), db.close()) }()
	for n := 1; n <= fleetSize; n++ {
		p, err := startProcess(ctx, n, f, db.url)
		if err != nil {
			return fmt.Errorf("instance %d: %w", n, err)
		}
		fleet.instances = append(fleet.instances, p)
	}
	return do(fleet)
}

// stop stops the instances; called again it does nothing.
func (f *fleet) stop() error {
	var err error
	for _, p := range f.instances { // all at once, then wait
		p.tell()
	}
	for _, p := range f.instances {
		err = errors.Join(err, p.wait())
	}
	f.instances = nil
	return err
}
