// Package exportpb is the example's gRPC service and its gateway, generated from
// export.proto.
package exportpb

// protoc is 3.21.12 (any later will do). The service has no HTTP annotations, so
// that a method is POST /package.Service/Method.
//go:generate go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11
//go:generate go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.1
//go:generate go install github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway@v2.27.3
//go:generate protoc -I ../../.. --go_out=../../.. --go_opt=module=github.com/latchkey-go/latchkey --go-grpc_out=../../.. --go-grpc_opt=module=github.com/latchkey-go/latchkey --grpc-gateway_out=../../.. --grpc-gateway_opt=module=github.com/latchkey-go/latchkey,generate_unbound_methods=true examples/grpcgateway/exportpb/export.proto
