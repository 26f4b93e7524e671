// Package joinkey is how Join of packages httpmw and grpcmw makes one id of
// several parts: each with its length in front, so that different parts never
// give the same id, in one transport or across both.
package joinkey

import "strconv"

// Append adds part to id.
func Append(id []byte, part string) []byte {
	id = strconv.AppendInt(id, int64(len(part)), 10)
	id = append(id, ':')
	return append(id, part...)
}
