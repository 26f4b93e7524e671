package route

import (
	"context"
	"errors"
)

// ErrRefused is a client's answer to 429 Too Many Requests or its gRPC peer.
var ErrRefused = errors.New("route: refused")

// An Endpoint is a server of its own, and clients connected to it.
type Endpoint interface {
	// Call makes a request of user, over the connection of one caller. A
	// caller makes one at a time.
	Call(ctx context.Context, caller int, user string) error

	Close() error
}
