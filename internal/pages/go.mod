// A module of its own, since the root module's zip has none of the pages. Its tests
// need -count=1: the go command does not notice that a page has changed.
module github.com/latchkey-go/latchkey/internal/pages

go 1.25.0

require (
	github.com/jackc/pgx/v5 v5.5.4
	github.com/latchkey-go/latchkey v0.0.0
	github.com/lib/pq v1.10.9
)

require (
	github.com/grpc-ecosystem/go-grpc-middleware/v2 v2.1.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20221227161230-091c0ba34f0a // indirect
	github.com/jackc/puddle/v2 v2.2.1 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/crypto v0.19.0 // indirect
	golang.org/x/net v0.21.0 // indirect
	golang.org/x/sync v0.6.0 // indirect
	golang.org/x/sys v0.17.0 // indirect
	golang.org/x/text v0.14.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20240227224415-6ceb2ff114de // indirect
	google.golang.org/grpc v1.63.2 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
)

replace github.com/latchkey-go/latchkey => ../..
