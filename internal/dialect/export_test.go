package dialect

// Slices reports whether s hands its driver slices of numbers.
func Slices(s Session) bool { return s.(*postgresSession).statements.slices }
