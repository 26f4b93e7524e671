package main

import (
	"testing"

	"github.com/latchkey-go/latchkey/examples/jobqueue/internal/demo"
	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	demo.WorkerMain(worker)
	dbtest.Main(m)
}
