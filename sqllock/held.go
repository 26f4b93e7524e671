package sqllock

import "context"

// Held reports whether ctx carries a lock of key that is still held. It is the
// question of a function that may be called with the lock or without it, since
// locks are not re-entrant:
//
//	if !sqllock.Held(ctx, key) {
//		return sqllock.Do(ctx, locks, key, rebuild)
//	}
//	return rebuild(ctx)
//
// It is about the lock in the context, not about the database: another caller
// may hold key while Held is false. A lock that was released or lost does not
// count, nor does one of another name with the same number. A reader's lock
// counts, so true allows the holder to write only if the code takes no readers'
// locks of key. ctx carries a lock as in [FromContext]. Held asks no database.
func Held(ctx context.Context, key Key) bool {
	for c := carrier(ctx); c != nil; c = carrier(c.parent) { // of two readers' locks the outer one may live on
		if c.lock.key == key && c.lock.Err() == nil {
			return true
		}
	}
	return false
}
