package pages

import (
	// go.mod and go.sum have what the code on the pages needs.
	_ "github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	_ "github.com/latchkey-go/latchkey/grpcmw"
)

const module = "github.com/latchkey-go/latchkey/"

// imports is the packages that fragments of code may use without saying so.
var imports = map[string]string{
	"context":     "context",
	"errors":      "errors",
	"expvar":      "expvar",
	"fmt":         "fmt",
	"http":        "net/http",
	"httptest":    "net/http/httptest",
	"log":         "log",
	"os":          "os",
	"driver":      "database/sql/driver",
	"slog":        "log/slog",
	"sql":         "database/sql",
	"strconv":     "strconv",
	"synctest":    "testing/synctest",
	"testing":     "testing",
	"time":        "time",
	"grpc":        "google.golang.org/grpc",
	"pgx":         "github.com/jackc/pgx/v5",
	"pgxpool":     "github.com/jackc/pgx/v5/pgxpool",
	"stdlib":      "github.com/jackc/pgx/v5/stdlib",
	"election":    module + "sqllock/election",
	"shard":       module + "sqllock/shard",
	"lockui":      module + "sqllock/lockui",
	"watermark":   module + "sqllock/watermark",
	"grpcmw":      module + "grpcmw",
	"httpmw":      module + "httpmw",
	"ratelimit":   module + "ratelimit",
	"sqllock":     module + "sqllock",
	"lockdoctor":  module + "sqllock/lockdoctor",
	"lockwatch":   module + "sqllock/lockwatch",
	"idempotency": module + "httpmw/idempotency",
}

// ambient is what a reader's own program declares: each name's type.
var ambient = map[string]string{
	"account":            "string",
	"appDB":              "*sql.DB",
	"auth":               "struct { UserID func(context.Context) (string, bool); Required func(http.Handler) http.Handler }",
	"authenticate":       "func(http.Handler) http.Handler",
	"authenticateCall":   "grpc.UnaryServerInterceptor",
	"authenticateStream": "grpc.StreamServerInterceptor",
	"ctx":                "context.Context",
	"db":                 "*sql.DB",
	"dsn":                "string",
	"err":                "error",
	"export":             "http.Handler",
	"exportHandler":      "func(sqllock.Locker, http.HandlerFunc) http.Handler",
	"exports":            "*ratelimit.Limiter",
	"from":               "sqllock.Key",
	"handler":            "http.Handler",
	"id":                 "string",
	"key":                "sqllock.Key",
	"lock":               "*sqllock.Lock",
	"locks":              "*sqllock.Session",
	"locksDB":            "*sql.DB",
	"logger":             "*slog.Logger",
	"mail":               "*election.Campaign",
	"mux":                "*http.ServeMux",
	"newKey":             "sqllock.Key",
	"oldKey":             "sqllock.Key",
	"pay":                "func(context.Context, *sql.Tx, http.ResponseWriter)",
	"perUser":            "*httpmw.Middleware",
	"server":             "*http.Server",
	"signals":            "<-chan os.Signal",
	"sqlxDB":             "interface { BeginTxx(context.Context, *sql.TxOptions) (*sql.Tx, error) }",
	"t":                  "*testing.T",
	"to":                 "sqllock.Key",
	"tx":                 "*sql.Tx",
	"userID":             "string",
	"work":               "func(context.Context) error",
}
