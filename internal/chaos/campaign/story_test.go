package campaign

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

func refusal(process int, begin, end history.Moment) history.Event {
	return history.Event{Try: &history.Try{Process: process, Key: 1, Begin: begin * ms, End: end * ms, Result: history.Held}}
}

// A freeze of process 1 from 1 s to 3 s, with its key granted to process 2 at
// 2.2 s.
func frozenOnce() [][]history.Event {
	return [][]history.Event{
		grant(1, 11, 900, 995, 3005, 3010, history.Lost),
		grant(2, 21, 2200, 2260, 0, 2270, history.OK),
		grant(3, 31, 2300, 2320, 0, 2330, history.OK),
		{fault(2, 1, 1000, 3000)},
		{refusal(3, 2150, 2155), refusal(3, 2050, 2055), refusal(2, 2190, 2300), refusal(1, 2180, 2185)},
	}
}

func TestStory(t *testing.T) {
	s, err := find(slices.Concat(frozenOnce()...))
	if err != nil {
		t.Fatal(err)
	}
	if s.lost.Lock != 11 || s.next.Lock != 21 || s.granted != 2200*ms-5 || s.refused != 2150*ms || len(s.others) != 2 {
		t.Errorf("got %+v", s)
	}
	if s.from > 900*ms || s.to < 3005*ms {
		t.Errorf("the picture is from %d to %d ms", s.from/ms, s.to/ms)
	}
}

// What is no story: each change takes away what one needs.
func TestNoStory(t *testing.T) {
	tests := []struct {
		name   string
		change func(all [][]history.Event)
	}{
		{"no freeze", func(all [][]history.Event) { all[3] = []history.Event{fault(4, 1, 1000, 3000)} }},
		{"another process froze", func(all [][]history.Event) { all[3] = []history.Event{fault(2, 3, 1000, 3000)} }},
		{"it was told before it woke up", func(all [][]history.Event) { all[0] = grant(1, 11, 900, 995, 1500, 1510, history.Lost) }},
		{"nothing was lost", func(all [][]history.Event) { all[0] = grant(1, 11, 900, 995, 0, 998, history.OK) }},
		{"nobody had the key meanwhile", func(all [][]history.Event) {
			all[1], all[2] = grant(2, 21, 3200, 3260, 0, 3270, history.OK), nil
		}},
	}
	for _, tt := range tests {
		all := frozenOnce()
		tt.change(all)
		if s, err := find(slices.Concat(all...)); !errors.Is(err, errNoStory) {
			t.Errorf("%s: %+v, %v", tt.name, s, err)
		}
	}
}

// Of two freezes, that of which more can be seen is chosen: both hold for longer.
// But not if nobody asked for the key, so that it is not known when it was freed.
func TestClearestStory(t *testing.T) {
	all := append(frozenOnce(),
		grant(2, 22, 9800, 9990, 12_005, 12_010, history.Lost), grant(1, 12, 11_500, 11_900, 0, 11_910, history.OK),
		[]history.Event{fault(2, 2, 10_000, 12_000)})
	if s, err := find(slices.Concat(all...)); err != nil || s.lost.Lock != 11 {
		t.Errorf("got %+v, %v; want the freeze of process 1", s, err)
	}
	all = append(all, []history.Event{refusal(3, 11_480, 11_485)})
	if s, err := find(slices.Concat(all...)); err != nil || s.lost.Lock != 22 {
		t.Errorf("got %+v, %v; want the freeze of process 2", s, err)
	}
}

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
		"refuses others (1150 ms)", "granted to the next (1199 ms)", "ErrLost (2005 ms)", ">500<", ">ms<",
	} {
		if !strings.Contains(string(picture), text) {
			t.Errorf("no %q in\n%s", text, picture)
		}
	}
	if strings.Contains(string(picture), "<image") || len(picture) > 20_000 {
		t.Errorf("%d bytes are not small", len(picture))
	}
	if _, err := newResult(fleetSettings(), nil).Timeline(); !errors.Is(err, errNoStory) {
		t.Errorf("a picture of nothing: %v", err)
	}
}

func TestPictureScale(t *testing.T) {
	p := &picture{story: story{from: 0, to: history.Moment(time.Second)}}
	for _, tt := range []struct {
		m    history.Moment
		want int
	}{{0, laneLeft}, {history.Moment(time.Second), laneRight}, {500 * ms, (laneLeft + laneRight) / 2}, {-5, laneLeft}, {5000 * ms, laneRight}} {
		if got := p.x(tt.m); got != tt.want {
			t.Errorf("%d ms is at %d, want %d", tt.m/ms, got, tt.want)
		}
	}
}
