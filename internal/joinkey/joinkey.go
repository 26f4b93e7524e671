// Package joinkey makes one id of several parts, for Join of packages httpmw
// and grpcmw. Each part has its length in front. Different parts therefore
// never make the same id, in one transport or across both.
package joinkey

import "strconv"

// Append adds part to id.
func Append(id []byte, part string) []byte {
	id = strconv.AppendInt(id, int64(len(part)), 10)
	id = append(id, ':')
	return append(id, part...)
}
