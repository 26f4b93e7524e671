package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// An outcome is what has come of an event: what the sender is answered, the first time
// and ever after.
type outcome struct {
	Event string `json:"event"`
	Entry int64  `json:"entry,omitempty"` // in the ledger; 0: it has been removed since

	again bool // it had been processed before
}

func (o outcome) send(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	if o.again {
		w.Header().Set("Webhook-Replayed", "true")
	}
	_ = json.NewEncoder(w).Encode(o)
}

var errOtherPayload = errors.New("the event has come before with another payload")

// once does what e is about, unless it has been done, and returns the outcome of
// whoever did it.
//
// Invariant: e's row in processed_events is committed with its entry in the ledger, or
// neither is. The row is inserted first: should another process be at work on e
// after all, having frozen and lost its lock, the primary key has one of the two wait
// for the end of the other. The lock spares the work and the wait; the key decides.
func (rc *receiver) once(ctx context.Context, e event) (outcome, error) {
	tx, err := rc.db.BeginTx(ctx, nil)
	if err != nil {
		return outcome{}, err
	}
	defer tx.Rollback()
	// Should this process freeze, the server ends the transaction, and the event is free.
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("SET LOCAL idle_in_transaction_session_timeout = %d", rc.maxIdle.Milliseconds())); err != nil {
		return outcome{}, err
	}
	result, err := tx.ExecContext(ctx,
		"INSERT INTO processed_events (event_id, payload_hash) VALUES ($1, $2) ON CONFLICT (event_id) DO NOTHING",
		e.ID, e.payload[:])
	if err != nil {
		return outcome{}, err
	}
	if n, err := result.RowsAffected(); err != nil {
		return outcome{}, err
	} else if n == 0 {
		return before(ctx, tx, e)
	}
	done, err := book(ctx, tx, e)
	if err != nil {
		return outcome{}, err
	}
	time.Sleep(rc.work)
	rc.crash.at(beforeCommit, e.ID, false)
	// If this fails, perhaps it has been carried out and perhaps not. The sender sends
	// the event again, and then it shows.
	return done, tx.Commit()
}

// book is the effect: all that it does, it does in tx.
func book(ctx context.Context, tx *sql.Tx, e event) (outcome, error) {
	o := outcome{Event: e.ID}
	err := tx.QueryRowContext(ctx,
		"INSERT INTO ledger (event_id, account, amount) VALUES ($1, $2, $3) RETURNING id",
		e.ID, e.Account, e.Amount).Scan(&o.Entry)
	return o, err
}

// before is the outcome of an event that has been processed before. That stays true
// when its entry has been removed from the ledger.
func before(ctx context.Context, tx *sql.Tx, e event) (outcome, error) {
	var payload []byte
	o := outcome{Event: e.ID, again: true}
	err := tx.QueryRowContext(ctx,
		"SELECT payload_hash, coalesce(ledger.id, 0) FROM processed_events LEFT JOIN ledger USING (event_id) WHERE event_id = $1",
		e.ID).Scan(&payload, &o.Entry)
	if err == nil && !bytes.Equal(payload, e.payload[:]) {
		err = errOtherPayload
	}
	return o, err
}
