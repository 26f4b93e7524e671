package grpcmw

import (
	"context"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Field takes the key from a field of the request message. The path has the
// names of the .proto file: "user.id" is field id of the message in field user.
// On a stream the first message counts.
//
// The field is a string, or an integer of any kind, whose decimal form is the
// key. For anything else write a KeyFunc. A field that is not set, or set to an
// empty string, is ErrNoKey, with the path in its text. So is a 0, unless the
// field is declared optional and set. A call whose message has no such field
// ends with INVALID_ARGUMENT, with a text that says so.
//
// The client chooses its message. A resource is a good key if the call was
// authorized for it before. A user's id in a message is not: see [KeyFunc].
//
// Field panics if path is not a list of protobuf names with dots between them.
func Field(path string) KeyFunc {
	if !protoreflect.FullName(path).IsValid() {
		panic("grpcmw: Field needs a path of protobuf field names, such as \"user.id\"")
	}
	names := strings.Split(path, ".")
	return func(_ context.Context, call interceptors.CallMeta) (string, error) {
		if call.ReqOrNil == nil {
			if call.Typ == interceptors.Unary {
				return "", &missingError{"field " + strconv.Quote(path) + " is not set: the call has no message"}
			}
			return "", ErrNeedMessage
		}
		message, ok := reflected(call.ReqOrNil)
		if !ok {
			return "", &fieldError{path: path, why: "the request is not a protobuf message"}
		}
		return fieldText(message, path, names)
	}
}

// reflected returns req as a protobuf message, as gRPC's own codec reads it.
func reflected(req any) (protoreflect.Message, bool) {
	switch m := req.(type) {
	case proto.Message:
		return m.ProtoReflect(), true
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(m).ProtoReflect(), true
	}
	return nil, false
}

// fieldText returns the text of the field at path, whose names are given. A
// message on the way that is not set reads as an empty one, so a wrong path
// fails with every message.
func fieldText(message protoreflect.Message, path string, names []string) (string, error) {
	for i, name := range names {
		field := message.Descriptor().Fields().ByName(protoreflect.Name(name))
		switch last := i == len(names)-1; {
		case field == nil:
			return "", &fieldError{message.Descriptor().FullName(), path, "the message has no field " + name}
		case last:
			return scalarText(message, field, path)
		case field.Message() == nil || field.IsList() || field.IsMap():
			return "", &fieldError{message.Descriptor().FullName(), path, "field " + name + " is not one message"}
		}
		message = message.Get(field).Message()
	}
	panic("grpcmw: a field's path has a name at least")
}

// scalarText returns the text of a field that is a string or an integer.
func scalarText(message protoreflect.Message, field protoreflect.FieldDescriptor, path string) (string, error) {
	var text func(protoreflect.Value) string
	switch field.Kind() {
	case protoreflect.StringKind:
		text = protoreflect.Value.String
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind,
		protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		text = func(v protoreflect.Value) string { return strconv.FormatInt(v.Int(), 10) }
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		text = func(v protoreflect.Value) string { return strconv.FormatUint(v.Uint(), 10) }
	}
	if text == nil || field.IsList() {
		why := "field " + string(field.Name()) + " is neither a string nor an integer"
		return "", &fieldError{message.Descriptor().FullName(), path, why}
	}
	if message.Has(field) {
		if key := text(message.Get(field)); key != "" {
			return key, nil
		}
	}
	return "", &missingError{"field " + strconv.Quote(path) + " is not set or empty"}
}

// A fieldError reports that the path of Field does not fit the message. It
// holds only names of the .proto file, so a client may read it.
type fieldError struct {
	message protoreflect.FullName // "" if it is no protobuf message
	path    string
	why     string
}

func (e *fieldError) Error() string {
	text := "grpcmw: no key at " + strconv.Quote(e.path)
	if e.message != "" {
		text += " in " + string(e.message)
	}
	return text + ": " + e.why
}
