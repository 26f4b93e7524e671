package rpclimit

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/latchkey-go/latchkey/ratelimit"
)

// Field returns a KeyFunc for the Field of pkg. message returns the message of a
// call, or nil. It panics if path is not a list of protobuf names with dots
// between them.
func Field[C any](pkg, path string, message func(C) any) func(context.Context, C) (string, error) {
	if !protoreflect.FullName(path).IsValid() {
		panic(pkg + ": Field needs a path of protobuf field names, such as \"user.id\"")
	}
	f := &field{path, strings.Split(path, ".")}
	return func(_ context.Context, call C) (string, error) {
		m := message(call)
		if m == nil {
			return "", ErrNeedMessage
		}
		return f.key(m)
	}
}

// A field is where a request message has its key.
type field struct {
	path  string
	names []string
}

// key returns the key in message. A message on the way that is not set reads as
// an empty one, so a wrong path fails with every message.
func (f *field) key(message any) (string, error) {
	m, ok := reflected(message)
	if !ok {
		return "", f.wrong("", "the request is not a protobuf message")
	}
	for _, name := range f.names[:len(f.names)-1] {
		field, err := f.find(m, name)
		switch {
		case err != nil:
			return "", err
		case field.Message() == nil || field.IsList() || field.IsMap():
			return "", f.wrong(m.Descriptor().FullName(), "field "+name+" is not one message")
		}
		m = m.Get(field).Message()
	}
	field, err := f.find(m, f.names[len(f.names)-1])
	if err != nil {
		return "", err
	}
	return f.scalar(m, field)
}

func (f *field) find(m protoreflect.Message, name string) (protoreflect.FieldDescriptor, error) {
	if field := m.Descriptor().Fields().ByName(protoreflect.Name(name)); field != nil {
		return field, nil
	}
	return nil, f.wrong(m.Descriptor().FullName(), "the message has no field "+name)
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

// scalar returns the text of a field that is a string or an integer.
func (f *field) scalar(m protoreflect.Message, field protoreflect.FieldDescriptor) (string, error) {
	key, ok := "", !field.IsList()
	switch value := m.Get(field); field.Kind() {
	case protoreflect.StringKind, protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind,
		protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind,
		protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		key = value.String() // of a string as it is, of an integer in decimal
	default:
		ok = false
	}
	switch {
	case !ok:
		return "", f.wrong(m.Descriptor().FullName(), "field "+string(field.Name())+" is neither a string nor an integer")
	case key == "" || !m.Has(field):
		return "", &told{ratelimit.ErrNoKey, "field " + strconv.Quote(f.path) + " is not set or empty"}
	}
	return key, nil
}

// wrong returns the error of a path that does not fit the message: a mistake of
// the server's programmer. It holds only names of the .proto file.
func (f *field) wrong(message protoreflect.FullName, why string) error {
	text := "ratelimit: no key at " + strconv.Quote(f.path)
	if message != "" {
		text += " in " + string(message)
	}
	return &told{errors.New(text), why}
}
