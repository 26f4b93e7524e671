package idempotency_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
)

// A client that leaves does not undo what its request did, if the handler goes
// on and writes a response. The retry gets that response.
func TestClientGone(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := httptesting.NewGate(t)
		s := b.serve(b.once(b.locks()), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			g.Inside <- r
			<-r.Context().Done()
			b.record(r)
			w.WriteHeader(http.StatusCreated)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := ask(ctx, s, demand{key: "k-1"})
			gone <- err
		}()
		httptesting.Receive(t, g.Inside, "request")
		cancel()
		if err := httptesting.Receive(t, gone, "end of the client"); err == nil {
			t.Error("the client got a response")
		}
		lockertest.Eventually(t, "the retry gets the response", func() bool {
			return mustAsk(t, s, demand{key: "k-1"}).Header.Get("Idempotency-Replayed") == "true"
		})
		b.wantEffects(1)
	})
}

// When the client gets the first byte, everything is committed and the lock is
// released. So the client may send the next request at once, to any instance.
func TestFirstByte(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		there := b.serve(b.once(b.locks()), b.pay(http.StatusCreated))
		here := b.serve(b.once(b.locks()), b.pay(http.StatusCreated))
		meanwhile := make(chan httptesting.Reply, 1)
		around := httptesting.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			here.Config.Handler.ServeHTTP(beginning{w, func() {
				if response, err := ask(t.Context(), there, demand{key: "k-1"}); err == nil {
					meanwhile <- response
				}
			}}, r)
		}))
		first := mustAsk(t, around, demand{key: "k-1"})
		wantReplay(t, httptesting.Receive(t, meanwhile, "response of the meantime"), first)
	})
}

// A beginning calls a func before the response begins.
type beginning struct {
	http.ResponseWriter
	begins func()
}

func (w beginning) WriteHeader(status int) {
	w.begins()
	w.ResponseWriter.WriteHeader(status)
}
