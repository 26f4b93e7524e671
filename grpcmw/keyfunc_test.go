package grpcmw_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/apipb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/typepb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// unary is the CallMeta of a unary call with a request, starting that of a
// stream before its first message, and first that of one with it.
func unary(req any) interceptors.CallMeta {
	return interceptors.NewServerCallMeta(streamInfo.FullMethod, nil, req)
}

func starting() interceptors.CallMeta {
	return interceptors.NewServerCallMeta(streamInfo.FullMethod, streamInfo, nil)
}

func first(req any) interceptors.CallMeta {
	return interceptors.NewServerCallMeta(streamInfo.FullMethod, streamInfo, req)
}

func TestField(t *testing.T) {
	fieldProto := func(number *int32) proto.Message {
		return &descriptorpb.FieldDescriptorProto{Number: number}
	}
	tests := []struct {
		name string
		path string
		call interceptors.CallMeta
		want string
		err  error // nil if wrong is set
		// wrong is in the text of the error for a message of the wrong kind.
		wrong string
	}{
		{"string", "value", unary(wrapperspb.String("alice")), "alice", nil, ""},
		{"int32", "value", unary(wrapperspb.Int32(-7)), "-7", nil, ""},
		{"int64", "value", unary(wrapperspb.Int64(-1 << 63)), "-9223372036854775808", nil, ""},
		{"uint32", "value", unary(wrapperspb.UInt32(1<<32 - 1)), "4294967295", nil, ""},
		{"uint64", "value", unary(wrapperspb.UInt64(1<<64 - 1)), "18446744073709551615", nil, ""},
		{"nested string", "response_status.message", unary(&pb.SimpleRequest{ResponseStatus: named("alice")}), "alice", nil, ""},
		{"nested twice", "options.declaration.number", unary(&descriptorpb.ExtensionRangeOptions{}), "", nil, "no field options"},
		{"in a oneof", "string_value", unary(structpb.NewStringValue("alice")), "alice", nil, ""},
		{"first message", "value", first(wrapperspb.String("alice")), "alice", nil, ""},

		{"message of the old API", "value", unary(&oldMessage{Value: "alice"}), "alice", nil, ""},

		{"empty string", "value", unary(wrapperspb.String("")), "", grpcmw.ErrNoKey, ""},
		{"zero", "value", unary(wrapperspb.Int64(0)), "", grpcmw.ErrNoKey, ""},
		{"optional, not set", "number", unary(fieldProto(nil)), "", grpcmw.ErrNoKey, ""},
		{"optional, set to zero", "number", unary(fieldProto(proto.Int32(0))), "0", nil, ""},
		{"optional, set to empty", "name", unary(&descriptorpb.FieldDescriptorProto{Name: proto.String("")}), "", grpcmw.ErrNoKey, ""},
		{"outer message not set", "response_status.message", unary(&pb.SimpleRequest{}), "", grpcmw.ErrNoKey, ""},
		{"nil message", "value", unary((*wrapperspb.StringValue)(nil)), "", grpcmw.ErrNoKey, ""},
		{"not this one of a oneof", "string_value", unary(structpb.NewNumberValue(1)), "", grpcmw.ErrNoKey, ""},
		{"no request", "value", unary(nil), "", grpcmw.ErrNeedMessage, ""},
		{"stream's start", "value", starting(), "", grpcmw.ErrNeedMessage, ""},

		{"unknown", "user", unary(wrapperspb.String("alice")), "", nil, "google.protobuf.StringValue: the message has no field user"},
		{"unknown in a message that is not set", "response_status.user", unary(&pb.SimpleRequest{}), "", nil, "grpc.testing.EchoStatus: the message has no field user"},
		{"below a scalar", "value.id", unary(wrapperspb.String("alice")), "", nil, "field value is not one message"},
		{"below a list", "methods.name", unary(&apipb.Api{}), "", nil, "field methods is not one message"},
		{"below a map", "fields.alice", unary(&structpb.Struct{}), "", nil, "field fields is not one message"},
		{"message", "response_status", unary(&pb.SimpleRequest{}), "", nil, "neither a string nor an integer"},
		{"list of strings", "oneofs", unary(&typepb.Type{}), "", nil, "neither a string nor an integer"},
		{"bool", "value", unary(wrapperspb.Bool(true)), "", nil, "neither a string nor an integer"},
		{"bytes", "value", unary(wrapperspb.Bytes([]byte("alice"))), "", nil, "neither a string nor an integer"},
		{"float", "value", unary(wrapperspb.Double(1)), "", nil, "neither a string nor an integer"},
		{"enum", "response_type", unary(&pb.SimpleRequest{ResponseType: 1}), "", nil, "neither a string nor an integer"},
		{"JSON name", "responseStatus.message", unary(&pb.SimpleRequest{}), "", nil, "no field responseStatus"},
		{"no protobuf", "value", unary(struct{ value string }{"alice"}), "", nil, "not a protobuf message"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := grpcmw.Field(tt.path)(t.Context(), tt.call)
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) || strings.Contains(err.Error(), "alice") && tt.path != "fields.alice" {
					t.Fatalf("error %v, want one with %q and no value", err, tt.wrong)
				}
				return
			}
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("%q, %v, want %q, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

// oldMessage is a message like those of protoc-gen-go before 2020.
type oldMessage struct {
	Value string `protobuf:"bytes,1,opt,name=value,proto3"`
}

func (m *oldMessage) Reset()         { *m = oldMessage{} }
func (m *oldMessage) String() string { return m.Value }
func (*oldMessage) ProtoMessage()    {}

// The other KeyFuncs find their key, or say where it is missing.
func TestKeyFuncs(t *testing.T) {
	const missing = `ratelimit: no key in the request: metadata entry "User" is missing or empty`
	const twice = `ratelimit: bad id: metadata entry "User" is given more than once`
	user := grpcmw.Metadata("User")
	in := func(key string, ok bool) grpcmw.KeyFunc {
		return grpcmw.FromContext(func(context.Context) (string, bool) { return key, ok })
	}
	tests := []struct {
		name string
		key  grpcmw.KeyFunc
		md   metadata.MD
		want string
		err  string
	}{
		{"once", user, metadata.Pairs("user", "alice"), "alice", ""},
		{"in another case", user, metadata.Pairs("USER", "alice"), "alice", ""},
		{"none", user, metadata.Pairs("name", "alice"), "", missing},
		{"empty", user, metadata.Pairs("user", ""), "", missing},
		{"twice", user, metadata.Pairs("user", "alice", "user", "bob"), "", twice},
		{"twice the same", user, metadata.Pairs("user", "alice", "user", "alice"), "", twice},

		{"in the context", in("alice", true), nil, "alice", ""},
		{"not in the context", in("alice", false), nil, "", "ratelimit: no key in the request"},
		{"empty in the context", in("", true), nil, "", "ratelimit: no key in the request"},

		{"joined", grpcmw.Join(constant("a:b"), constant("c")), nil, "3:a:b1:c", ""},
		{"an empty part", grpcmw.Join(constant("a"), constant("")), nil, "", "ratelimit: no key in the request: a part of it is empty"},
		{"the first error", grpcmw.Join(user, grpcmw.Field("value")), nil, "", missing},
		{"a part that needs the message", grpcmw.Join(constant("a"), grpcmw.Field("value")), nil, "", grpcmw.ErrNeedMessage.Error()},
	}
	for _, tt := range tests {
		got, err := tt.key(metadata.NewIncomingContext(t.Context(), tt.md), starting())
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != tt.want || text != tt.err {
			t.Errorf("%s: %q, %q; want %q, %q", tt.name, got, text, tt.want, tt.err)
		}
	}
}

// constant returns a KeyFunc that returns key.
func constant(key string) grpcmw.KeyFunc {
	return func(context.Context, interceptors.CallMeta) (string, error) { return key, nil }
}

func fails(err error) grpcmw.KeyFunc {
	return func(context.Context, interceptors.CallMeta) (string, error) { return "", err }
}

func TestMisusePanics(t *testing.T) {
	limit := ratelimit.OneAtATime(sqllock.NewMemory(), namespace)
	good := grpcmw.Level{Limiter: limit, Key: constant("a")}
	tests := map[string]func(){
		"Field()":                      func() { grpcmw.Field("") },
		"Field(a..b)":                  func() { grpcmw.Field("a..b") },
		"Field(a.)":                    func() { grpcmw.Field("a.") },
		"Field(a b)":                   func() { grpcmw.Field("a b") },
		"Metadata()":                   func() { grpcmw.Metadata("") },
		"FromContext(nil)":             func() { grpcmw.FromContext(nil) },
		"Join()":                       func() { grpcmw.Join() },
		"Join(nil)":                    func() { grpcmw.Join(nil) },
		"Join(key, nil)":               func() { grpcmw.Join(constant("a"), nil) },
		"WithLogger(nil)":              func() { grpcmw.WithLogger(nil) },
		"WithBusyText()":               func() { grpcmw.WithBusyText("") },
		"WithErrorDomain()":            func() { grpcmw.WithErrorDomain("") },
		"WithPushback(0)":              func() { grpcmw.WithPushback(0) },
		"WithPushback(-1)":             func() { grpcmw.WithPushback(-1) },
		"UnaryServerInterceptor(nil)":  func() { grpcmw.UnaryServerInterceptor(nil, constant("a")) },
		"UnaryServerInterceptor(l)":    func() { grpcmw.UnaryServerInterceptor(limit, nil) },
		"StreamServerInterceptor(nil)": func() { grpcmw.StreamServerInterceptor(nil, constant("a")) },
		"StreamServerInterceptor(l)":   func() { grpcmw.StreamServerInterceptor(limit, nil) },
		"UnaryStackInterceptor()":      func() { grpcmw.UnaryStackInterceptor(nil) },
		"no Limiter in a level":        func() { grpcmw.UnaryStackInterceptor([]grpcmw.Level{good, {Key: good.Key}}) },
		"StreamStackInterceptor()":     func() { grpcmw.StreamStackInterceptor(nil) },
		"no Key in a level":            func() { grpcmw.StreamStackInterceptor([]grpcmw.Level{good, {Limiter: limit}}) },
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) { httptesting.WantPanic(t, "grpcmw", "", f) })
	}
}
