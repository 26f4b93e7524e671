module github.com/latchkey-go/latchkey/internal/chaos

go 1.26.0

require github.com/latchkey-go/latchkey v0.0.0

replace github.com/latchkey-go/latchkey => ../..
