package locks

import "github.com/redis/go-redis/v9"

// FullDuplex is whether an AutoPipeline is in effect in full duplex.
func FullDuplex(l Locks) bool {
	return l.(*goRedisLocks).commands.(*redis.AutoPipeliner).Config().FullDuplex
}
