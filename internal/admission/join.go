package admission

import (
	"fmt"
	"strconv"

	"github.com/latchkey-go/latchkey/ratelimit"
)

var errEmptyPart = fmt.Errorf("%w: a part of it is empty", ratelimit.ErrNoKey)

// Join makes one id of n parts, for the Join of each package. The error is that
// of the first part that fails. An empty part is ErrNoKey.
func Join(n int, part func(i int) (string, error)) (string, error) {
	var memory [128]byte
	id := memory[:0]
	for i := range n {
		part, err := part(i)
		switch {
		case err != nil:
			return "", err
		case part == "":
			return "", errEmptyPart
		}
		id = AppendPart(id, part)
	}
	return string(id), nil
}

// AppendPart adds part to id, with its length in front. Different parts
// therefore never make the same id, in one transport or across several.
func AppendPart(id []byte, part string) []byte {
	id = strconv.AppendInt(id, int64(len(part)), 10)
	id = append(id, ':')
	return append(id, part...)
}

// One returns the value of a field that must be given exactly once. Of a
// repeated one no value can be trusted. An empty one is missing.
func One(values []string, missing, repeated error) (string, error) {
	switch {
	case len(values) > 1:
		return "", repeated
	case len(values) == 0 || values[0] == "":
		return "", missing
	}
	return values[0], nil
}
