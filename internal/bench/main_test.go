package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/results"
)

func TestParse(t *testing.T) {
	tests := []struct {
		args   string
		rounds int
		runs   []string // scenarios among those run
		not    []string // and not
	}{
		{"", 5, []string{"pairs", "fleet", "waiting"}, nil},
		{"-quick", 2, []string{"pairs", "delayed"}, []string{"fleet"}},
		{"-quick -rounds 3", 3, nil, nil},
		{"-scenarios held,pairs", 5, []string{"held", "pairs"}, []string{"delayed"}},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			c, err := parse(strings.Fields(tt.args), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if c.plan.rounds != tt.rounds {
				t.Errorf("%d rounds, want %d", c.plan.rounds, tt.rounds)
			}
			for _, name := range tt.runs {
				if !slices.Contains(c.chosen, name) {
					t.Errorf("does not run %s", name)
				}
			}
			for _, name := range tt.not {
				if slices.Contains(c.chosen, name) {
					t.Errorf("runs %s", name)
				}
			}
		})
	}
	for _, wrong := range []string{"-scenarios nothing", "more", "-rounds x"} {
		if _, err := parse(strings.Fields(wrong), io.Discard); err == nil {
			t.Errorf("%q was accepted", wrong)
		}
	}
}

// Each round has everybody once.
func TestInterleave(t *testing.T) {
	var order string
	one := func(name string) contestant {
		return contestant{name: name, x: 8, measure: func(context.Context) (results.Round, error) {
			order += name
			return results.Round{Rate: float64(len(order))}, nil
		}}
	}
	b := &bench{plan: plan{rounds: 4}, results: &results.Results{}, log: slog.New(slog.DiscardHandler)}
	if err := b.interleave(t.Context(), "pairs", []contestant{one("a"), one("b"), one("c")}); err != nil {
		t.Fatal(err)
	}
	for round := range 4 {
		for _, name := range []string{"a", "b", "c"} {
			if !strings.Contains(order[3*round:3*round+3], name) {
				t.Errorf("order %s: round %d lacks %s", order, round, name)
			}
		}
	}
	if order[:6] == order[6:] {
		t.Errorf("order %s: always the same", order)
	}
	s := b.results.Find("pairs", "b", "", 8)
	if s == nil || len(s.Rounds) != 4 {
		t.Fatalf("series of b: %+v", s)
	}
	for round, r := range s.Rounds {
		if order[int(r.Rate)-1] != 'b' || (int(r.Rate)-1)/3 != round {
			t.Errorf("order %s: round %d of b has another one's figures", order, round)
		}
	}
	failing := contestant{name: "f", x: 9, measure: func(context.Context) (results.Round, error) { return results.Round{}, io.ErrUnexpectedEOF }}
	if err := b.interleave(t.Context(), "pairs", []contestant{failing, {name: "e", x: 9, measure: one("e").measure}}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a contestant that failed: %v", err)
	}
	if b.results.Find("pairs", "f", "", 9) != nil || len(b.results.Find("pairs", "e", "", 9).Rounds) != 4 {
		t.Error("who failed is in the results, or others are not")
	}
	ctx, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	if err := b.interleave(ctx, "pairs", []contestant{one("d")}); err == nil || strings.Contains(order, "d") {
		t.Errorf("%v, order %s: measured after the end", err, order)
	}
}
