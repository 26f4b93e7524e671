package inprocess

import (
	"flag"
	"os"
	"testing"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	os.Exit(pgtest.Main(m))
}

// Each benchmark does what it says a few times: one that fails has no figures.
func TestBenchmarks(t *testing.T) {
	if err := flag.Set("test.benchtime", "20x"); err != nil {
		t.Fatal(err)
	}
	benchmarks := map[string]func(*testing.B){
		"memory pair":     MemoryPair,
		"handler, bare":   Handler(false),
		"handler, memory": Handler(true),
		"unary, bare":     Unary(false),
		"unary, memory":   Unary(true),
	}
	for _, driver := range pgtest.Drivers() {
		s, closeAll, err := Session(t.Context(), driver, pgtest.Database(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = closeAll() })
		benchmarks["refusal, "+driver] = Refusal(s, false)
		benchmarks["refusal with hash, "+driver] = Refusal(s, true)
		benchmarks["pair, "+driver] = SessionPair(s, 4)
	}
	// One that fails after it has begun well, too.
	failing, closeFailing, err := Session(t.Context(), "pgx", pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	pair, runs := SessionPair(failing, 4), 0
	r := testing.Benchmark(func(b *testing.B) {
		if runs++; runs == 2 {
			_ = closeFailing()
		}
		pair(b)
	})
	if runs < 2 || r.N != 0 {
		t.Errorf("after a failure in run %d there are figures of %d operations", runs, r.N)
	}
	for name, run := range benchmarks {
		if r := testing.Benchmark(run); r.N == 0 {
			t.Errorf("%s failed", name)
		}
	}
}
