package delay

import (
	"errors"
	"io"
	"net"
	"slices"
	"time"
)

// Measure returns the median time that a byte takes through a proxy with the
// given delay to a peer and back, when nothing else happens.
func Measure(oneWay time.Duration) (roundTrip time.Duration, err error) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer echo.Close()
	go serveEcho(echo)
	proxy, err := Start(echo.Addr().String(), oneWay)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, proxy.Close()) }()
	conn, err := net.Dial("tcp", proxy.Addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var took []time.Duration
	for range 100 {
		start := time.Now()
		if _, err := conn.Write([]byte{1}); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

func serveEcho(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}
