// Package exportpb is the quickstart's gRPC service, generated from
// export.proto.
package exportpb

// protoc is 3.21.12 (any later will do); the plugins are go.mod's versions of
// protobuf and grpc.
//go:generate go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11
//go:generate go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.1
//go:generate protoc -I ../../.. --go_out=../../.. --go_opt=module=github.com/latchkey-go/latchkey --go-grpc_out=../../.. --go-grpc_opt=module=github.com/latchkey-go/latchkey examples/quickstart/exportpb/export.proto
