//go:build !linux

package delay

import "time"

func sharpenTimer() {}

func sleepUntil(due time.Time) { time.Sleep(time.Until(due)) }
