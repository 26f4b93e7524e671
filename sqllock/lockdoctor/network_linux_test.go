package lockdoctor

import "testing"

func TestNetwork(t *testing.T) {
	if onNetwork(t.TempDir()) || onNetwork("/proc/nowhere") {
		t.Error("the temporary directory, or one that is missing, counts as one on the network")
	}
	for number, want := range map[uint32]bool{0x6969: true, 0xff534d42: true, 0xef53: false, 0x01021994: false} { // NFS, CIFS, ext4, tmpfs
		if isNetwork(number) != want {
			t.Errorf("%#x: %v", number, !want)
		}
	}
}
