package main

import (
	"runtime"
	"testing"
)

func TestMeter(t *testing.T) {
	var m meter
	m.add(3)
	m.mark()
	if got := m.between(); got != 0 {
		t.Errorf("before its second mark a meter tells %v, want 0", got)
	}
	m.add(4)
	m.mark()
	m.add(5)
	if got := m.between(); got != 4 {
		t.Errorf("between = %v, want 4", got)
	}
}

func TestContextSwitches(t *testing.T) {
	if got := contextSwitches(); (got > 0) != (runtime.GOOS == "linux") {
		t.Errorf("%d context switches on %s", got, runtime.GOOS)
	}
}
