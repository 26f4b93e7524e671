package httpmw

import (
	"io"
	"net/http"
)

// The optional interfaces of a ResponseWriter.
const (
	flusher = 1 << iota
	hijacker
	readerFrom
	pusher
	closeNotifier
)

// exposed returns w with exactly the optional interfaces of the ResponseWriter
// below it. Handlers use them to detect what the server supports.
func (w *heldWriter) exposed() http.ResponseWriter {
	set := 0
	if _, ok := w.w.(http.Flusher); ok {
		set |= flusher
	}
	if _, ok := w.w.(http.Hijacker); ok {
		set |= hijacker
	}
	if _, ok := w.w.(io.ReaderFrom); ok {
		set |= readerFrom
	}
	push, ok := w.w.(http.Pusher)
	if ok {
		set |= pusher
	}
	//lint:ignore SA1019 deprecated, but still used
	notify, ok := w.w.(http.CloseNotifier)
	if ok {
		set |= closeNotifier
	}
	return w.exposing(set, push, notify)
}

// exposing returns w with a set of optional interfaces. In Go each set needs a
// type of its own.
//
//lint:ignore SA1019 deprecated, but still used
func (w *heldWriter) exposing(set int, push http.Pusher, notify http.CloseNotifier) http.ResponseWriter {
	switch set {
	case flusher:
		return struct {
			*heldWriter
			http.Flusher
		}{w, flushingWriter{w}}
	case hijacker:
		return struct {
			*heldWriter
			http.Hijacker
		}{w, hijackingWriter{w}}
	case flusher | hijacker:
		return struct {
			*heldWriter
			http.Flusher
			http.Hijacker
		}{w, flushingWriter{w}, hijackingWriter{w}}
	case readerFrom:
		return struct {
			*heldWriter
			io.ReaderFrom
		}{w, copyingWriter{w}}
	case flusher | readerFrom:
		return struct {
			*heldWriter
			http.Flusher
			io.ReaderFrom
		}{w, flushingWriter{w}, copyingWriter{w}}
	case hijacker | readerFrom:
		return struct {
			*heldWriter
			http.Hijacker
			io.ReaderFrom
		}{w, hijackingWriter{w}, copyingWriter{w}}
	case flusher | hijacker | readerFrom:
		return struct {
			*heldWriter
			http.Flusher
			http.Hijacker
			io.ReaderFrom
		}{w, flushingWriter{w}, hijackingWriter{w}, copyingWriter{w}}
	case pusher:
		return struct {
			*heldWriter
			http.Pusher
		}{w, push}
	case flusher | pusher:
		return struct {
			*heldWriter
			http.Flusher
			http.Pusher
		}{w, flushingWriter{w}, push}
	case hijacker | pusher:
		return struct {
			*heldWriter
			http.Hijacker
			http.Pusher
		}{w, hijackingWriter{w}, push}
	case flusher | hijacker | pusher:
		return struct {
			*heldWriter
			http.Flusher
			http.Hijacker
			http.Pusher
		}{w, flushingWriter{w}, hijackingWriter{w}, push}
	case readerFrom | pusher:
		return struct {
			*heldWriter
			io.ReaderFrom
			http.Pusher
		}{w, copyingWriter{w}, push}
	case flusher | readerFrom | pusher:
		return struct {
			*heldWriter
			http.Flusher
			io.ReaderFrom
			http.Pusher
		}{w, flushingWriter{w}, copyingWriter{w}, push}
	case hijacker | readerFrom | pusher:
		return struct {
			*heldWriter
			http.Hijacker
			io.ReaderFrom
			http.Pusher
		}{w, hijackingWriter{w}, copyingWriter{w}, push}
	case flusher | hijacker | readerFrom | pusher:
		return struct {
			*heldWriter
			http.Flusher
			http.Hijacker
			io.ReaderFrom
			http.Pusher
		}{w, flushingWriter{w}, hijackingWriter{w}, copyingWriter{w}, push}
	case closeNotifier:
		return struct {
			*heldWriter
			http.CloseNotifier
		}{w, notify}
	case flusher | closeNotifier:
		return struct {
			*heldWriter
			http.Flusher
			http.CloseNotifier
		}{w, flushingWriter{w}, notify}
	case hijacker | closeNotifier:
		return struct {
			*heldWriter
			http.Hijacker
			http.CloseNotifier
		}{w, hijackingWriter{w}, notify}
	case flusher | hijacker | closeNotifier:
		return struct {
			*heldWriter
			http.Flusher
			http.Hijacker
			http.CloseNotifier
		}{w, flushingWriter{w}, hijackingWriter{w}, notify}
	case readerFrom | closeNotifier:
		return struct {
			*heldWriter
			io.ReaderFrom
			http.CloseNotifier
		}{w, copyingWriter{w}, notify}
	case flusher | readerFrom | closeNotifier:
		return struct {
			*heldWriter
			http.Flusher
			io.ReaderFrom
			http.CloseNotifier
		}{w, flushingWriter{w}, copyingWriter{w}, notify}
	case hijacker | readerFrom | closeNotifier:
		return struct {
			*heldWriter
			http.Hijacker
			io.ReaderFrom
			http.CloseNotifier
		}{w, hijackingWriter{w}, copyingWriter{w}, notify}
	case flusher | hijacker | readerFrom | closeNotifier:
		return http1Writer{w}
	case pusher | closeNotifier:
		return struct {
			*heldWriter
			http.Pusher
			http.CloseNotifier
		}{w, push, notify}
	case flusher | pusher | closeNotifier:
		return http2Writer{w}
	case hijacker | pusher | closeNotifier:
		return struct {
			*heldWriter
			http.Hijacker
			http.Pusher
			http.CloseNotifier
		}{w, hijackingWriter{w}, push, notify}
	case flusher | hijacker | pusher | closeNotifier:
		return struct {
			*heldWriter
			http.Flusher
			http.Hijacker
			http.Pusher
			http.CloseNotifier
		}{w, flushingWriter{w}, hijackingWriter{w}, push, notify}
	case readerFrom | pusher | closeNotifier:
		return struct {
			*heldWriter
			io.ReaderFrom
			http.Pusher
			http.CloseNotifier
		}{w, copyingWriter{w}, push, notify}
	case flusher | readerFrom | pusher | closeNotifier:
		return struct {
			*heldWriter
			http.Flusher
			io.ReaderFrom
			http.Pusher
			http.CloseNotifier
		}{w, flushingWriter{w}, copyingWriter{w}, push, notify}
	case hijacker | readerFrom | pusher | closeNotifier:
		return struct {
			*heldWriter
			http.Hijacker
			io.ReaderFrom
			http.Pusher
			http.CloseNotifier
		}{w, hijackingWriter{w}, copyingWriter{w}, push, notify}
	case flusher | hijacker | readerFrom | pusher | closeNotifier:
		return struct {
			*heldWriter
			http.Flusher
			http.Hijacker
			io.ReaderFrom
			http.Pusher
			http.CloseNotifier
		}{w, flushingWriter{w}, hijackingWriter{w}, copyingWriter{w}, push, notify}
	default:
		return w
	}
}
