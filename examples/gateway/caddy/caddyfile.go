package caddy

import (
	"strconv"

	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// The limits come after authentication, and just in front of the proxy.
func init() {
	httpcaddyfile.RegisterHandlerDirective("latchkey", parse)
	httpcaddyfile.RegisterDirectiveOrder("latchkey", httpcaddyfile.Before, "reverse_proxy")
}

// parse reads the directive:
//
//	latchkey [<matcher>] {
//		database <url>
//		level    <name> <limit> <key>
//	}
func parse(d httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h := new(Handler)
	d.Next() // the directive's name
	if d.NextArg() {
		return nil, d.ArgErr()
	}
	for d.NextBlock(0) {
		switch d.Val() {
		case "database":
			if h.Database != "" {
				return nil, d.Err("latchkey has one database")
			}
			if !d.AllArgs(&h.Database) {
				return nil, d.ArgErr()
			}
		case "level":
			var l Level
			var limit string
			if !d.AllArgs(&l.Name, &limit, &l.Key) {
				return nil, d.Err("a level is written as: level <name> <limit> <key>")
			}
			var err error
			if l.Limit, err = strconv.Atoi(limit); err != nil {
				return nil, d.Errf("the limit of level %q is not a number", l.Name)
			}
			h.Levels = append(h.Levels, l)
		default:
			return nil, d.Errf("latchkey has no option %q; there are database and level", d.Val())
		}
	}
	if err := h.check(); err != nil {
		return nil, d.WrapErr(err)
	}
	return h, nil
}
