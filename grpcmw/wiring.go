package grpcmw

import (
	"context"
	"errors"
	"log/slog"

	"github.com/latchkey-go/latchkey/internal/rpclimit"
)

// Mistakes in how a server is wired, for the log.
const (
	noKeyText  = "grpcmw: a call has no key: is the interceptor after the authentication?"
	twiceText  = "grpcmw: a call needs two places of one limit: is the limit on its road twice?"
	failedText = "grpcmw: a KeyFunc failed"
)

// reportKey logs err of a KeyFunc, for which a call of method is rejected, if
// the client cannot correct it.
func (g *guard) reportKey(ctx context.Context, method string, rejected *rejection, err error) {
	var wrongField *rpclimit.FieldError // of every call of the method
	switch {
	case rejected.fault, errors.As(err, &wrongField):
		g.report(ctx, method, slog.LevelError, failedText, slog.Any("error", err))
	case errors.Is(err, ErrNoKey) && !errors.Is(err, errNoMessage):
		g.report(ctx, method, slog.LevelWarn, noKeyText, slog.Any("error", err))
	}
}

// report logs text about method.
func (g *guard) report(ctx context.Context, method string, level slog.Level, text string, attrs ...slog.Attr) {
	attrs = append(attrs, slog.String("namespace", string(g.limiter.Namespace())))
	g.reports.Log(ctx, g.log, level, text, slog.String("method", method), attrs...)
}

// exempt reports whether calls of method are not limited.
func (g *guard) exempt(method string) bool { return !g.all && rpclimit.Unlimited(method) }
