package faults

import (
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
)

// Rows returns the rows of the table that exist in a store, by number. Two are
// tested elsewhere: row 18, jumps of the client's clocks, in the simulation, and
// row 29, handlers that fail, in package httpmw.
func Rows(store fleet.Store) []Row {
	var all []Row
	switch store {
	case fleet.Leases:
		all = leaseRows
	case fleet.PooledLeases:
		all = pooledRows
	case fleet.MariaDB:
		all = mariadbRows
	case fleet.SQLite:
		all = sqliteRows
	default:
		all = postgresRows
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Row) int { return a.Number - b.Number })
	return all
}

// postgresRows are the rows with advisory locks.
var postgresRows = slices.Concat(processRows, networkRows, serverRows, placeRows, keyRows, secretRows)

// same returns rows of postgresRows, by number, that have the same effect in
// another store.
func same(numbers ...int) (rows []Row) {
	for _, n := range numbers {
		i := slices.IndexFunc(postgresRows, func(r Row) bool { return r.Number == n })
		rows = append(rows, postgresRows[i])
	}
	return rows
}

// with returns such rows with another effect.
func with(e Effect, numbers ...int) []Row {
	rows := same(numbers...)
	for i := range rows {
		rows[i].Effect = e
	}
	return rows
}
