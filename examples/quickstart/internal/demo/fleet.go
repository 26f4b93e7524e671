package demo

import (
	"context"
	"errors"
	"fmt"
)

// A fleet is the instances of the service and their database.
type fleet struct {
	database  *database
	instances []*instance
}

const fleetSize = 2

// withFleet starts a fleet, calls do and stops the fleet.
func withFleet(ctx context.Context, namespace string, f flags, do func(*fleet) error) (err error) {
	db, err := openDatabase(namespace)
	if err != nil {
		return err
	}
	fleet := &fleet{database: db}
	defer func() { err = errors.Join(err, fleet.stop(), db.close()) }()
	for n := 1; n <= fleetSize; n++ {
		i, err := startInstance(ctx, &Instance{Number: n, Driver: db.driver, DSN: db.dsn, ExportTakes: f.export})
		if err != nil {
			return fmt.Errorf("instance %d: %w", n, err)
		}
		fleet.instances = append(fleet.instances, i)
	}
	return do(fleet)
}

// stop stops the instances. Called again it does nothing.
func (f *fleet) stop() error {
	var err error
	for _, i := range f.instances { // all at once
		i.Ask()
	}
	for _, i := range f.instances {
		err = errors.Join(err, i.Stop(stopTimeout))
		<-i.read
	}
	f.instances = nil
	return err
}
