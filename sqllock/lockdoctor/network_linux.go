package lockdoctor

import (
	"slices"
	"syscall"
)

// networkFileSystems are the numbers of those that Linux tells apart, from
// linux/magic.h: NFS, CIFS, SMB, SMB2, 9P, AFS and Ceph.
var networkFileSystems = []uint32{0x6969, 0xff534d42, 0x517b, 0xfe534d42, 0x01021997, 0x5346414f, 0x00c36400}

// onNetwork reports whether a directory is on a network file system.
func onNetwork(directory string) bool {
	var stat syscall.Statfs_t
	return syscall.Statfs(directory, &stat) == nil && isNetwork(uint32(stat.Type)) //nolint:gosec,unconvert // its width differs between architectures
}

func isNetwork(number uint32) bool { return slices.Contains(networkFileSystems, number) }
