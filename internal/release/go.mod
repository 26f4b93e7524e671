// A module of its own, so that programs which use latchkey do not get it.
module github.com/latchkey-go/latchkey/internal/release

go 1.26.0
