package main

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/examples/gateway/internal/demo"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	demo.Roles(demo.Service{Gateway: gateway, Proxy: newProxy})
	code := pgtest.Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
