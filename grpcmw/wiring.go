package grpcmw

import (
	"context"
	"errors"
	"log/slog"

	"github.com/latchkey-go/latchkey/internal/rpclimit"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// Mistakes in how a server is wired, for the log.
const (
	noKeyText  = "grpcmw: a call has no key: is the interceptor after the authentication?"
	twiceText  = "grpcmw: a call needs two places of one limit: is the limit on its road twice?"
	failedText = "grpcmw: a KeyFunc failed"
	policyText = "grpcmw: the policy of a limit failed"
)

// reportKey logs err of a KeyFunc for l, for which a call of method is rejected,
// if the client cannot correct it.
func (g *guard) reportKey(ctx context.Context, method string, l *ratelimit.Limiter, rejected *rejection, err error) {
	var wrongField *rpclimit.FieldError // of every call of the method
	switch {
	case rejected.fault, errors.As(err, &wrongField):
		g.report(ctx, method, l, slog.LevelError, failedText, slog.Any("error", err))
	case errors.Is(err, ErrNoKey) && !errors.Is(err, errNoMessage):
		g.report(ctx, method, l, slog.LevelWarn, noKeyText, slog.Any("error", err))
	}
}

// report logs text about method and l.
func (g *guard) report(ctx context.Context, method string, l *ratelimit.Limiter, severity slog.Level, text string, attrs ...slog.Attr) {
	attrs = append(attrs, slog.String("namespace", string(l.Namespace())))
	g.reports.Log(ctx, g.log, severity, text, slog.String("method", method), attrs...)
}

// reportPolicy logs err of a limit's policy. Its text names the limit.
func (g *guard) reportPolicy(ctx context.Context, method string, err error) {
	g.reports.Log(ctx, g.log, slog.LevelError, policyText, slog.String("method", method), slog.Any("error", err))
}

// exempt reports whether calls of method are not limited.
func (g *guard) exempt(method string) bool { return !g.all && rpclimit.Unlimited(method) }
