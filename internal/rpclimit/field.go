package rpclimit

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A Field is where a request message has its key.
type Field struct {
	pkg   string
	noKey error
	path  string
	names []string
}

// NewField returns the field at path, for package pkg, whose error for a call
// without a key is noKey. It panics if path is not a list of protobuf names
// with dots between them.
func NewField(pkg string, noKey error, path string) Field {
	if !protoreflect.FullName(path).IsValid() {
		panic(pkg + ": Field needs a path of protobuf field names, such as \"user.id\"")
	}
	return Field{pkg, noKey, path, strings.Split(path, ".")}
}

// Missing returns the error of a message that lacks the field for the reason
// why.
func (f Field) Missing(why string) error {
	return &MissingError{f.noKey, "field " + strconv.Quote(f.path) + " is not set" + why}
}

// Key returns the key in message. The error is a [*FieldError] or a
// [*MissingError]. A message on the way that is not set reads as an empty one,
// so a wrong path fails with every message.
func (f Field) Key(message any) (string, error) {
	m, ok := reflected(message)
	if !ok {
		return "", f.wrong("", "the request is not a protobuf message")
	}
	for i, name := range f.names {
		field := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		switch last := i == len(f.names)-1; {
		case field == nil:
			return "", f.wrong(m.Descriptor().FullName(), "the message has no field "+name)
		case last:
			return f.scalar(m, field)
		case field.Message() == nil || field.IsList() || field.IsMap():
			return "", f.wrong(m.Descriptor().FullName(), "field "+name+" is not one message")
		}
		m = m.Get(field).Message()
	}
	panic(f.pkg + ": a field's path has a name at least")
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
func (f Field) scalar(message protoreflect.Message, field protoreflect.FieldDescriptor) (string, error) {
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
		return "", f.wrong(message.Descriptor().FullName(), why)
	}
	if message.Has(field) {
		if key := text(message.Get(field)); key != "" {
			return key, nil
		}
	}
	return "", f.Missing(" or empty")
}

func (f Field) wrong(message protoreflect.FullName, why string) error {
	return &FieldError{f.pkg, message, f.path, why}
}

// A FieldError reports that the path of a Field does not fit the message. It
// holds only names of the .proto file, so a client may read it.
type FieldError struct {
	pkg     string
	message protoreflect.FullName // "" if it is no protobuf message
	path    string
	why     string
}

func (e *FieldError) Error() string {
	text := e.pkg + ": no key at " + strconv.Quote(e.path)
	if e.message != "" {
		text += " in " + string(e.message)
	}
	return text + ": " + e.why
}

// A MissingError is NoKey with the place where the key should be. It holds only
// names that the server's programmer chose, so a client may read it.
type MissingError struct {
	NoKey error
	Where string
}

func (e *MissingError) Error() string { return e.NoKey.Error() + ": " + e.Where }

// Is makes errors.Is(err, e.NoKey) hold.
func (e *MissingError) Is(target error) bool { return target == e.NoKey }
