package main

import "os/exec"

// busyLoop keeps a processor busy until its parent has ended.
const busyLoop = `while kill -0 "$PPID"; do :; done`

// startBusy starts n processes that each keep a processor busy, until the
// returned function is called or this process ends.
func startBusy(n int) (stop func(), err error) {
	var started []*exec.Cmd
	stop = func() {
		for _, c := range started {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	for range n {
		c := exec.Command("sh", "-c", busyLoop)
		inSession(c)
		if err := c.Start(); err != nil {
			stop()
			return nil, err
		}
		started = append(started, c)
	}
	return stop, nil
}
