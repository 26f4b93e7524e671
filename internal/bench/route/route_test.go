package route

import (
	"errors"
	"os"
	"testing"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	os.Exit(pgtest.Main(m))
}

// Over each protocol a user whose place is taken is refused, another one and
// the next one are not.
func TestRefusal(t *testing.T) {
	postgres, err := Postgres(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	guards := map[string]*Guard{"memory": Memory(), "postgres": postgres}
	protocols := map[string]func(*Guard) (Endpoint, error){
		"http": func(g *Guard) (Endpoint, error) { return HTTP(g, 2) },
		"grpc": GRPC,
	}
	for name, g := range guards {
		t.Cleanup(func() { _ = g.Close() })
		for protocol, open := range protocols {
			t.Run(name+"/"+protocol, func(t *testing.T) { refuses(t, g, open) })
		}
	}
}

func refuses(t *testing.T, g *Guard, open func(*Guard) (Endpoint, error)) {
	e, err := open(g)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	give, err := g.Hold(t.Context(), "ada")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the connection is good for another request after each answer
		if err := e.Call(t.Context(), 0, "ada"); !errors.Is(err, ErrRefused) {
			t.Errorf("a user whose place is taken: %v, want ErrRefused", err)
		}
		if err := e.Call(t.Context(), 0, "bob"); err != nil {
			t.Errorf("another user: %v", err)
		}
	}
	if err := give(); err != nil {
		t.Fatal(err)
	}
	if err := e.Call(t.Context(), 1, "ada"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A bare route lets everything through.
func TestBare(t *testing.T) {
	for name, open := range map[string]func(*Guard) (Endpoint, error){
		"http": func(g *Guard) (Endpoint, error) { return HTTP(g, 1) },
		"grpc": GRPC,
	} {
		e, err := open(Bare())
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Call(t.Context(), 0, "ada"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := e.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
