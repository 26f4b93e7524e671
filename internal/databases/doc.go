// Package databases tests the locks on every kind of database that they
// support, with the drivers that people use.
//
// It is a module of its own, so that the kit depends on none of the drivers.
package databases
