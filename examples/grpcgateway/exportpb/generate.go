// Package exportpb is the gateway of the quickstart's gRPC service, generated from
// its export.proto.
package exportpb

// protoc is 3.21.12 (any later will do). The service has no HTTP annotations, so
// that a method is POST /package.Service/Method.
//go:generate go install github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway@v2.27.3
//go:generate protoc -I ../../.. --grpc-gateway_out=.. --grpc-gateway_opt=module=github.com/latchkey-go/latchkey/examples/quickstart,standalone=true,generate_unbound_methods=true examples/quickstart/exportpb/export.proto
