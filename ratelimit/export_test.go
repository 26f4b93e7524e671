package ratelimit

// Lines returns how many lines l has.
func Lines(l *Limiter) int { return len(l.lines.m) }
