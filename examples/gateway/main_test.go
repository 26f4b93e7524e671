package main

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/subprocess/programtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	programtest.Main(main)
	dbtest.Main(m)
}
