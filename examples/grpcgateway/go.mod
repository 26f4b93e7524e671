module github.com/latchkey-go/latchkey/examples/grpcgateway

go 1.26.0

require (
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.27.3
	github.com/latchkey-go/latchkey v0.0.0
	github.com/latchkey-go/latchkey/examples/quickstart v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260120221211-b8f7ae30c516
	google.golang.org/grpc v1.80.0
)

require (
	github.com/grpc-ecosystem/go-grpc-middleware/v2 v2.3.4 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/net v0.49.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20260120221211-b8f7ae30c516 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)

replace github.com/latchkey-go/latchkey => ../..

replace github.com/latchkey-go/latchkey/examples/quickstart => ../quickstart

replace github.com/latchkey-go/latchkey/ratelimit/promlatchkey => ../../ratelimit/promlatchkey
