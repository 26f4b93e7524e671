package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
)

// The accounts of a run, by the database: $1 is what its events' ids begin with.
const accountSQL = `SELECT count(*), count(DISTINCT event_id), coalesce(sum(amount), 0),
	(SELECT count(*) FROM processed_events WHERE starts_with(event_id, $1))
	FROM ledger WHERE starts_with(event_id, $1)`

// An account is what the database holds of a run.
type account struct {
	effects, events int   // rows in the ledger, and of how many events
	amount          int64 // their sum
	processed       int   // rows in processed_events
}

// account prints what was sent and what has come of it. It fails if that does not
// tally: if an event was lost or took effect twice, or a crash did not happen.
func (s *sender) account(ctx context.Context, url, run string, sent []event, out io.Writer) error {
	got, err := readAccount(ctx, url, run)
	if err != nil {
		return err
	}
	var amount int64
	for _, e := range sent {
		amount += e.Amount
	}
	s.tally.print(out)
	fmt.Fprintf(out, "\n%d events sent, %d deliveries, %d effects, %d of them repeated; amount sent %d, booked %d\n",
		len(sent), s.tally.all, got.effects, got.effects-got.events, amount, got.amount)
	if want := (account{len(sent), len(sent), amount, len(sent)}); got != want {
		return fmt.Errorf("the accounts do not tally: %+v, want %+v", got, want)
	}
	crashed := s.fleet.crashed()
	for _, point := range []string{afterCommit, beforeCommit} {
		if crashed[point] == "" {
			return errors.New("no receiver was killed " + point + ": send more events")
		}
	}
	fmt.Fprintln(out, "each event took effect exactly once, though one receiver was killed in an effect and one between COMMIT and answer")
	return nil
}

func readAccount(ctx context.Context, url, run string) (a account, err error) {
	db, err := openPool(url, 1)
	if err != nil {
		return account{}, err
	}
	defer db.Close()
	if err := db.QueryRowContext(ctx, accountSQL, run).Scan(&a.effects, &a.events, &a.amount, &a.processed); err != nil {
		return account{}, errors.New("the accounts cannot be read: " + reason(err))
	}
	return a, nil
}

func (t *tally) print(out io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nDELIVERIES\tANSWER")
	for _, row := range tallyRows {
		if n := t.counts[row]; n > 0 {
			fmt.Fprintf(table, "%d\t%s\n", n, row)
		}
	}
	_ = table.Flush()
}
