package main

import (
	"encoding/binary"
	"time"
)

// guardCommand is the argument with which the program is a guard.
const guardCommand = "guard"

// orders are what a guard was last told. Both processes read the same clock.
type orders struct {
	group  int           // the process group to end; 0: the command has not started
	killAt time.Duration // by bootTime: end it then, unless there are later orders; 0: the command has ended
	sudden time.Duration // end it so long after the lock's connection was closed
}

const orderBytes = 24

func (o orders) encode() []byte {
	b := make([]byte, 0, orderBytes)
	for _, n := range []int64{int64(o.group), int64(o.killAt), int64(o.sudden)} {
		b = binary.BigEndian.AppendUint64(b, uint64(n)) // #nosec G115 -- decode turns it back
	}
	return b
}

func decode(b []byte) orders {
	n := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[8*i:])) } // #nosec G115
	return orders{int(n(0)), time.Duration(n(1)), time.Duration(n(2))}
}
