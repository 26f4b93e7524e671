package main

import (
	"testing"

	"github.com/latchkey-go/latchkey/examples/gateway/internal/demo"
	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	demo.Roles(demo.Service{Gateway: gateway, Proxy: newProxy})
	dbtest.Main(m)
}
