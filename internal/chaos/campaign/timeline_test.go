package campaign

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestTimeline(t *testing.T) {
	r := newResult(fleetSettings(), nil)
	r.events = slices.Concat(frozenOnce()...)
	picture, err := r.Timeline()
	if err != nil {
		t.Fatal(err)
	}
	for decoder := xml.NewDecoder(bytes.NewReader(picture)); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not well-formed: %v\n%s", err, picture)
		}
	}
	for _, text := range []string{
		"frozen for 2000 ms (lease 1000 ms)", "process 1<", "process 2<", "process 3<",
		">refused<", ">granted to another process: 1200 ms<", ">told ErrLost: 2005 ms<", ">500<",
	} {
		if !strings.Contains(string(picture), text) {
			t.Errorf("no %q in\n%s", text, picture)
		}
	}
	if strings.Contains(string(picture), "<image") || len(picture) > 30_000 {
		t.Errorf("%d bytes are not small", len(picture))
	}
	if _, err := newResult(fleetSettings(), nil).Timeline(); !errors.Is(err, errNoFreeze) {
		t.Errorf("a picture of nothing: %v", err)
	}
}
