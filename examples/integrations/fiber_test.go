package integrations_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"

	"github.com/latchkey-go/latchkey/examples/integrations/fiberlock"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// newApp returns an instance of a service. All instances share the storage, such
// as one of github.com/gofiber/storage, and the secret.
func newApp(locks sqllock.Locker, shared fiber.Storage, secret []byte, pay fiber.Handler) *fiber.App {
	locker := fiberlock.New(locks, sqllock.Namespace("idempotency").Keyed(secret).Key, 5*time.Second)
	app := fiber.New()
	app.Use(idempotency.New(idempotency.Config{Lock: locker, Storage: shared}))
	app.Post("/payments", pay)
	return app
}

// A storage is a fiber.Storage that several instances share, as Redis would be.
type storage struct {
	fiber.Storage // only the methods below are called
	responses     sync.Map
}

func (s *storage) GetWithContext(_ context.Context, key string) ([]byte, error) {
	response, _ := s.responses.Load(key)
	b, _ := response.([]byte)
	return b, nil
}

func (s *storage) SetWithContext(_ context.Context, key string, value []byte, _ time.Duration) error {
	s.responses.Store(key, value)
	return nil
}

// post sends a request to app, and returns its response.
func post(app *fiber.App, path string) string {
	r := httptest.NewRequest(http.MethodPost, path, http.NoBody)
	r.Header.Set("X-Idempotency-Key", "5f0c1f60-1c3e-4e0b-9a57-2f6a2b8f7f0e")
	response, err := app.Test(r, fiber.TestConfig{}) // without a timeout
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return fmt.Sprintf("%d %s", response.StatusCode, body)
}

func Example_fiber() {
	locks := sqllock.NewMemory() // a service has a *sqllock.Session
	app := newApp(locks, &storage{}, []byte("from the secret store"), func(c fiber.Ctx) error {
		fmt.Println("paid")
		return c.SendStatus(http.StatusCreated)
	})
	for range 2 {
		fmt.Println(post(app, "/payments"))
	}
	// Output:
	// paid
	// 201 Created
	// 201 Created
}

var fiberKeys = sqllock.Namespace("idempotency").Keyed([]byte("a secret of 16 B"))

// A request that has lost its lock does not release that of the next holder.
// Errors become the right statuses, and an id that was never locked is none.
func TestFiberLock(t *testing.T) {
	t.Parallel()
	m := sqllock.NewMemory()
	l := fiberlock.New(m, fiberKeys.Key, onlyHang)
	if err := errors.Join(l.Lock("a"), l.Lock("b"), l.Unlock("b"), l.Unlock("b")); err != nil {
		t.Fatal(err)
	}
	m.Lose()
	if err := l.Lock("a"); err != nil { // another request
		t.Fatal(err)
	}
	if err := l.Unlock("a"); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("Unlock of a lost lock: %v", err)
	}
	var e *fiber.Error
	err := fiberlock.New(m, fiberKeys.Key, time.Millisecond).Lock("a")
	if !errors.As(err, &e) || e.Code != fiber.StatusConflict {
		t.Errorf("a busy key: %v", err)
	}
	if err := l.Unlock("a"); err != nil {
		t.Error(err)
	}
	dbtest.Unlock(t, dbtest.Lock(t, m, fiberKeys.Key("a")))

	closed := sqlite(t)()
	err = errors.Join(closed.Close(), fiberlock.New(closed, fiberKeys.Key, onlyHang).Lock("a"))
	if !errors.As(err, &e) || e.Code != fiber.StatusServiceUnavailable {
		t.Errorf("no lock service: %v", err)
	}
}

// instances serves one request at each of three instances at once, all with the
// same idempotency key, and returns how often the handler ran. The handlers return
// when all run or the other requests wait.
func instances(t *testing.T, locker func() idempotency.Locker, wait func() bool) (ran int32) {
	var calls atomic.Int32
	shared, finish := &storage{}, make(chan struct{})
	var requests sync.WaitGroup
	for range 3 {
		app := fiber.New()
		app.Use(idempotency.New(idempotency.Config{Lock: locker(), Storage: shared}))
		app.Post("/", func(c fiber.Ctx) error {
			calls.Add(1)
			<-finish
			return c.SendString("paid")
		})
		requests.Go(func() {
			if response := post(app, "/"); response != "200 paid" {
				t.Error(response)
			}
		})
	}
	lockertest.Eventually(t, "the requests run or wait", func() bool { return calls.Load() == 3 || wait() })
	close(finish)
	requests.Wait()
	return calls.Load()
}

// fiberInstances checks that one of three instances runs the handler, and that the
// others send its response.
func fiberInstances(t *testing.T, fleet fleet) {
	var sessions []*sqllock.Session
	locker := func() idempotency.Locker {
		sessions = append(sessions, fleet())
		return fiberlock.New(sessions[len(sessions)-1], fiberKeys.Key, onlyHang)
	}
	waiting := func() bool {
		n := 0
		for _, s := range sessions {
			n += s.Stats().Waiting
		}
		return n == 2
	}
	if ran := instances(t, locker, waiting); ran != 1 {
		t.Errorf("the handler ran %d times", ran)
	}
}

// With the middleware's own lock each instance runs the handler.
func TestFiberOwnLock(t *testing.T) {
	t.Parallel()
	own := func() idempotency.Locker { return idempotency.NewMemoryLock() }
	if ran := instances(t, own, func() bool { return false }); ran != 3 {
		t.Errorf("the handler ran %d times: the page is wrong", ran)
	}
}
