module github.com/latchkey-go/latchkey/examples/jobqueue

go 1.26.0

require (
	github.com/jmoiron/sqlx v1.4.0
	github.com/latchkey-go/latchkey v0.0.0
)

replace github.com/latchkey-go/latchkey => ../..
