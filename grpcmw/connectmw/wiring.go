package connectmw

import (
	"context"
	"log/slog"

	"github.com/latchkey-go/latchkey/ratelimit"
)

// Mistakes in how a server is wired, for the log.
const (
	noKeyText  = "connectmw: a call has no key: is the interceptor after the authentication?"
	twiceText  = "connectmw: a call needs two places of one limit: is the limit on its road twice?"
	failedText = "connectmw: a KeyFunc failed"
	policyText = "connectmw: the policy of a limit failed"
)

// report logs text about the procedure of call.
func (i *Interceptor) report(ctx context.Context, call Call, level slog.Level, text string, attrs ...slog.Attr) {
	i.reports.Log(ctx, i.log, level, text, slog.String("procedure", call.Spec.Procedure), attrs...)
}

// named is the attribute of a line about l.
func named(l *ratelimit.Limiter) slog.Attr { return slog.String("namespace", string(l.Namespace())) }
