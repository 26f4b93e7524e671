package httpmw

import "io"

// A copyingWriter is a heldWriter whose ResponseWriter is an [io.ReaderFrom],
// by which the kernel copies files.
type copyingWriter struct{ *heldWriter }

// ReadFrom hands the server a reader that it recognizes: an *[io.LimitedReader]
// around the file itself.
func (w copyingWriter) ReadFrom(src io.Reader) (n int64, err error) {
	before := w.state
	if before == unbegun {
		w.begin(200)
	}
	w.yield()
	switch w.state {
	case open, hijacked:
		n, err = w.w.(io.ReaderFrom).ReadFrom(src)
	case counted:
		n, err = w.copyCounted(src)
	default: // the server's ReadFrom would flush the header
		n, err = io.Copy(withoutReadFrom{w.heldWriter}, src)
	}
	if before == unbegun && n == 0 && !w.keeps { // an empty src begins no response
		w.state = unbegun
	}
	return n, err
}

// copyCounted copies all but the last byte of the body with the server's
// ReadFrom, and the rest with Write.
func (w copyingWriter) copyCounted(src io.Reader) (n int64, err error) {
	if part, from := w.allButLast(src); part.N > 0 {
		limit := part.N
		n, err = w.w.(io.ReaderFrom).ReadFrom(part)
		w.left -= n
		if from != nil {
			from.N -= n
		}
		if err != nil || n < limit {
			return n, err
		}
	}
	rest, err := io.Copy(withoutReadFrom{w.heldWriter}, src)
	return n + rest, err
}

// allButLast returns the part of src that may be copied before its last byte.
// If src is limited itself, from is src: the server recognizes one limit, not
// two.
func (w copyingWriter) allButLast(src io.Reader) (part, from *io.LimitedReader) {
	limit := max(0, w.left-1)
	from, ok := src.(*io.LimitedReader)
	if !ok {
		return &io.LimitedReader{R: src, N: limit}, nil
	}
	return &io.LimitedReader{R: from.R, N: min(limit, from.N)}, from
}

// A withoutReadFrom has only the Write of w.
type withoutReadFrom struct{ w *heldWriter }

func (w withoutReadFrom) Write(p []byte) (int, error) { return w.w.Write(p) }
