package delay

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"time"
)

// serve relays connections to target until stdin ends; it says on stdout where
// it listens.
func serve(target string, oneWay time.Duration, stdin io.Reader, stdout io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	// A line that sleeps in the kernel keeps its processor slot until Go's monitor
	// takes the slot away. That can last milliseconds. Without spare slots nothing
	// would be read meanwhile.
	runtime.GOMAXPROCS(max(8, runtime.GOMAXPROCS(0)))
	there, back := newLine(oneWay), newLine(oneWay)
	go there.deliver()
	go back.deliver()
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go relay(client, target, there, back)
		}
	}()
	if _, err := fmt.Fprintln(stdout, listener.Addr()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// relay puts what a connection brings on the lines.
func relay(client net.Conn, target string, there, back *line) {
	server, err := net.Dial("tcp", target)
	if err != nil {
		_ = client.Close()
		return
	}
	go read(client, server, there)
	read(server, client, back)
}

// read sends what comes from one connection on its way to another, the end
// included. Go sets TCP_NODELAY on both by itself.
func read(from, to net.Conn, l *line) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		now := time.Now()
		if n > 0 {
			l.send(parcel{to: to, data: append([]byte(nil), buffer[:n]...), due: now.Add(l.delay)})
		}
		if err != nil {
			l.send(parcel{to: to, due: now.Add(l.delay)})
			return
		}
	}
}
