// A module of its own, so that users of latchkey do not get it.
module github.com/latchkey-go/latchkey/internal/mutate

go 1.25.0
