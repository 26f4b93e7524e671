package connectmw

import "github.com/latchkey-go/latchkey/ratelimit"

// A Level is a limit that counts for a call, and how to find the key that the
// call counts for.
type Level struct {
	Limiter *ratelimit.Limiter
	Key     KeyFunc
}

// NewStack is [New] for several limits. The handler is called if the call gets a
// place on each of levels: for example one of its user, one of its tenant and
// one of all. The call gets all places or none, in one round trip
// ([ratelimit.AcquireAll]).
//
// The KeyFuncs are called in order, each once, before the first place is taken.
// The error of one decides as [KeyFunc] says, and the later ones are not called.
// [ErrBypass] means that this level does not limit the call. The other levels
// do. If a KeyFunc returns [ErrNeedMessage] on a stream, all locks are acquired
// with the first message. That KeyFunc is called again then, and the later ones
// for the first time.
//
// If a level is full, the error names that level, in its text, its ErrorInfo
// and its QuotaFailure. RetryInfo is that of this level. If several are full, the
// error names the first. Calls that wait take turns by the key of the first
// level. So the first level is mostly the narrowest, such as that of the user.
//
// The loss of one lock ends the handler's context like the loss of all. In the
// handler [sqllock.FromContext] returns the lock of the last level, and with
// keys the lock of any.
//
// NewStack panics if there are no levels, or a Limiter or Key is nil.
func NewStack(levels []Level, opts ...Option) *Interceptor {
	return newInterceptor("NewStack", levels, opts)
}
