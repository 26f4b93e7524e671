package main

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/subprocess"
	"github.com/latchkey-go/latchkey/internal/subprocess/programtest"
)

// member is the role of an instance that a test starts, without the program.
const member = "member"

func TestMain(m *testing.M) {
	bound.Lengthen()
	subprocess.Main(member, instance)
	programtest.Main(main)
	dbtest.Main(m)
}

// leads waits until an instance works as the leader, and returns its token.
func leads(t *testing.T, p *subprocess.Process) (token string) {
	t.Helper()
	for {
		line, err := p.ReadLine()
		if err != nil {
			t.Fatalf("an instance has ended: %v", err)
		}
		var entry struct{ Msg, Token string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "worked" {
			return entry.Token
		}
	}
}

// When the leader ends, the other instance leads, with a greater token.
func TestNextLeader(t *testing.T) {
	url := pgtest.Database(t)
	last := ""
	var before *subprocess.Process
	for range 3 {
		p, err := subprocess.Start(member, url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Kill() })
		if before != nil {
			go before.Stdout.WriteTo(io.Discard) //nolint:errcheck // it would block if nothing read its log
			before.Ask()
		}
		token := leads(t, p)
		if token <= last {
			t.Errorf("the token %q does not come after %q", token, last)
		}
		before, last = p, token
	}
}

// A DATABASE_URL that leads nowhere is an error that does not show it.
func TestUnknownDatabase(t *testing.T) {
	c := programtest.Command(t)
	c.Env = append(c.Env, "DATABASE_URL=postgres://ann:secret@127.0.0.1:1/none")
	out, err := c.CombinedOutput()
	if err == nil || bytes.Contains(out, []byte("secret")) || bytes.Contains(out, []byte("127.0.0.1")) {
		t.Errorf("it ends with %v\n%s", err, out)
	}
}
