package locks

import (
	"slices"

	"github.com/latchkey-go/latchkey/sqllock"
)

// The drivers that Contender.Driver names.
const (
	Pgx = "pgx"
	PQ  = "lib/pq"
)

// The contenders that ratios are about.
const (
	KitPgx           = "latchkey, pgx"
	KitPQ            = "latchkey, lib/pq"
	PerConnectionPgx = "connection per lock, pgx"
	PerConnectionPQ  = "connection per lock, lib/pq"
	GoRedis          = "go-redis"
	AutoPipeline     = "go-redis AutoPipeline"
	Rueidis          = "rueidis"
	RueidisTuned     = "rueidis, tuned"
)

// PoolSize is how many connections those have that need one per lock: about
// what a service can have to itself of PostgreSQL's default of 100.
const PoolSize = 90

// All is every contender, in the order of the report.
func All() []Contender {
	return slices.Concat(kit(), perConnection(), rows(), redisClients())
}

// Named are those of All that have one of the names.
func Named(names ...string) []Contender {
	return slices.DeleteFunc(All(), func(c Contender) bool { return !slices.Contains(names, c.Name) })
}

const namespace sqllock.Namespace = "bench"

// advisoryKey is the number that PostgreSQL sees, computed as the kit does.
func advisoryKey(name string) int64 { return namespace.Key(name).Int64() }

// sqlName is a driver's name in package database/sql.
func sqlName(driver string) string {
	if driver == PQ {
		return "postgres"
	}
	return driver
}
