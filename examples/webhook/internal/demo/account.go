package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// accountSQL reads the account of a run. The ids of its events begin with $1.
const accountSQL = `SELECT count(*), count(DISTINCT event_id), coalesce(sum(amount), 0),
	(SELECT count(*) FROM processed_events WHERE starts_with(event_id, $1))
	FROM ledger WHERE starts_with(event_id, $1)`

// An account is what the database holds of a run.
type account struct {
	effects, events int   // rows in the ledger, and of how many events
	amount          int64 // their sum
	processed       int   // rows in processed_events
}

// account prints what was sent and what became of it. It fails if an event was
// lost or took effect twice, or if a crash did not happen.
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
	fmt.Fprintf(out, "\n%d events sent in %d deliveries; %d effects, %d of them repeated; amount sent %d, booked %d\n",
		len(sent), s.tally.all, got.effects, got.effects-got.events, amount, got.amount)
	if want := (account{len(sent), len(sent), amount, len(sent)}); got != want {
		return fmt.Errorf("the accounts do not add up: %+v, want %+v", got, want)
	}
	crashed := s.fleet.crashed()
	for _, point := range []string{AfterCommit, BeforeCommit} {
		if !crashed[point] {
			return errors.New("no receiver was killed " + point + ": send more events")
		}
	}
	fmt.Fprintln(out, "OK: each event took effect exactly once, though one receiver was killed before a COMMIT and one after.")
	return nil
}

func readAccount(ctx context.Context, url, run string) (a account, err error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return account{}, err
	}
	defer db.Close()
	if err := db.QueryRowContext(ctx, accountSQL, run).Scan(&a.effects, &a.events, &a.amount, &a.processed); err != nil {
		return account{}, errors.New("the accounts cannot be read")
	}
	return a, nil
}

func (t *tally) print(out io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nDELIVERIES\tRESPONSE\tMEANING")
	for _, row := range tallyRows {
		if n := t.counts[row]; n > 0 {
			fmt.Fprintf(table, "%d\t%s\t%s\n", n, row.response, row.meaning)
		}
	}
	_ = table.Flush()
}
