package election_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// A leader sends letters. Before each one it checks that it still leads.
func ExampleCampaign() {
	locks, done := dbtest.ExampleSession()
	defer done()
	ctx, cancel := context.WithCancel(context.Background()) // of the process
	defer cancel()

	key := sqllock.Namespace("leader").Key("mailer")
	err := election.New(locks, key).Run(ctx, func(ctx context.Context) error {
		lock, _ := sqllock.FromContext(ctx)
		for n := 1; ctx.Err() == nil; n++ {
			if err := lock.Err(); err != nil { // right before the effect
				return err
			}
			fmt.Println("letter", n)
			if n == 2 {
				cancel() // the process is asked to stop
			}
			select {
			case <-ctx.Done(): // or the lock is lost
			case <-time.After(time.Millisecond):
			}
		}
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// letter 1
	// letter 2
	// context canceled
}

// A function that returns resigns. Its goroutines must have ended by then: here
// one goes on while the next leader works.
func ExampleCampaign_incorrect() {
	locks := sqllock.NewMemory()
	key := sqllock.Namespace("leader").Key("mailer")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	led, end, work := make(chan bool), make(chan bool), make(chan string)
	go func() {
		_ = election.New(locks, key, election.WithBackoff(time.Hour, time.Hour)).Run(ctx, func(context.Context) error { // it leads once
			go func() { <-end; work <- "the first one works" }()
			close(led)
			return nil
		})
	}()
	<-led
	_ = election.New(locks, key).Run(ctx, func(context.Context) error {
		close(end)
		fmt.Println(<-work, "while the second one leads")
		cancel()
		return nil
	})
	// Output: the first one works while the second one leads
}

// A health endpoint reports whether this process leads, since when, and with
// which token.
func ExampleCampaign_Status() {
	locks, done := dbtest.ExampleSession()
	defer done()
	c := election.New(locks, sqllock.Namespace("leader").Key("mailer"))
	health := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := c.Status()
		if err := json.NewEncoder(w).Encode(map[string]any{"leader": s.Leader, "since": s.Since, "token": s.Token}); err != nil {
			log.Print(err)
		}
	})

	ask := func() (answer struct {
		Leader bool
		Since  time.Time
		Token  string
	},
	) {
		w := httptest.NewRecorder()
		health(w, httptest.NewRequest(http.MethodGet, "/health", nil))
		if err := json.NewDecoder(w.Body).Decode(&answer); err != nil {
			log.Fatal(err)
		}
		return answer
	}
	ctx, cancel := context.WithCancel(context.Background())
	fmt.Println(ask().Leader)
	_ = c.Run(ctx, func(context.Context) error {
		answer := ask()
		fmt.Println(answer.Leader, !answer.Since.IsZero(), len(answer.Token))
		cancel()
		return nil
	})
	fmt.Println(ask().Leader)
	// Output:
	// false
	// true true 50
	// false
}

func ExampleCampaign_Resign() {
	c := election.New(sqllock.NewMemory(), sqllock.Namespace("leader").Key("mailer"))
	ctx, cancel := context.WithCancel(context.Background())
	_ = c.Run(ctx, func(ctx context.Context) error {
		c.Resign() // from a handler for operators, say
		<-ctx.Done()
		fmt.Println(errors.Is(context.Cause(ctx), election.ErrResigned), c.Status().Leader)
		cancel() // else this process stands again after a pause
		return nil
	})
	fmt.Println(c.Status().Leader)
	// Output:
	// true true
	// false
}

func ExampleWithBackoff() {
	c := election.New(sqllock.NewMemory(), sqllock.Namespace("leader").Key("mailer"),
		election.WithBackoff(10*time.Millisecond, time.Minute))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_ = c.Run(ctx, func(context.Context) error {
		fmt.Println("term", c.Status().Terms)
		if c.Status().Terms == 2 {
			cancel()
		}
		return errors.New("cannot reach the mail server") // stand again, after a pause that grows
	})
	fmt.Println(c.Status().Err)
	// Output:
	// term 1
	// term 2
	// context canceled
	// cannot reach the mail server
}
