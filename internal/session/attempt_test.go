package session

import (
	"context"
	"database/sql"
	"testing"
	"testing/synctest"
	"time"
)

// An attempt that succeeds after another one has won undoes what it has brought.
// So does one that succeeds after its own time.
func TestSecondSuccessIsUndone(t *testing.T) {
	for name, late := range map[string]bool{"after another": false, "after its time": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, won := context.WithCancel(t.Context())
				defer won()
				undone := 0
				second := &race[int]{
					ctx: ctx, slot: newSlot(&Session{db: new(sql.DB)}), outcomes: make(chan outcome[int]),
					do: func(context.Context) (int, error) {
						if late {
							time.Sleep(time.Minute)
						}
						return 1, nil
					},
					undo: func(int) { undone++ },
				}
				second.start()
				if late {
					_, err := second.first(nil)
					if err != context.DeadlineExceeded { //nolint:errorlint // as it is
						t.Errorf("the attempt: %v", err)
					}
					time.Sleep(time.Minute)
				}
				synctest.Wait() // it has succeeded, and first does not receive
				won()
				synctest.Wait()
				if undone != 1 {
					t.Errorf("undone %d times, want once", undone)
				}
			})
		})
	}
}
