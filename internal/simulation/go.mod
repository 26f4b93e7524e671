// A module of its own, so that users of latchkey get neither these tests nor
// rapid. The version of rapid is old on purpose, as those in the root module.
module github.com/latchkey-go/latchkey/internal/simulation

go 1.25.0

require (
	github.com/latchkey-go/latchkey v0.0.0
	pgregory.net/rapid v1.0.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20221227161230-091c0ba34f0a // indirect
	github.com/jackc/pgx/v5 v5.5.4 // indirect
	github.com/jackc/puddle/v2 v2.2.1 // indirect
	github.com/lib/pq v1.10.9 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/crypto v0.19.0 // indirect
	golang.org/x/sync v0.6.0 // indirect
	golang.org/x/text v0.14.0 // indirect
)

replace github.com/latchkey-go/latchkey => ../..
