package delay

import (
	"bytes"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// A round trip takes at least twice the delay; how much more is not a test's to
// say.
func TestDelay(t *testing.T) {
	const oneWay = 500 * time.Microsecond
	got, err := Measure(oneWay)
	if err != nil {
		t.Fatal(err)
	}
	if got < 2*oneWay {
		t.Errorf("a round trip took %v, want %v or more", got, 2*oneWay)
	}
	t.Logf("a round trip takes %v", got)
}

// All bytes arrive, in order, however many are on their way.
func TestOrder(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go serveEcho(echo)
	proxy, err := Start(echo.Addr().String(), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	}()
	sent := make([]byte, 8<<20)
	for i := range sent {
		sent[i] = byte(i ^ i>>8 ^ i>>16)
	}
	for range 3 {
		conn, err := net.Dial("tcp", proxy.Addr)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = conn.Write(sent) }()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(conn, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, sent) {
			t.Error("bytes arrived changed")
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}
