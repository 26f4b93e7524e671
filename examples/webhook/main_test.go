package main

import (
	"os/exec"
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

// command returns the program on a database.
func command(t *testing.T, databaseURL string, args ...string) *exec.Cmd {
	t.Helper()
	c := programtest.Command(t, args...)
	c.Env = append(c.Env, "DATABASE_URL="+databaseURL, "WEBHOOK_SECRET=s3cret")
	return c
}
