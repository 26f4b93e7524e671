package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// receipt is the field with the number of the effect.
const receipt = "X-Receipt"

// payingSchema makes the table of payments. It has no constraint, so that a
// second effect of a key would be seen.
func payingSchema() []string {
	return []string{"CREATE TABLE payments (idem_key bigint NOT NULL, number bigint NOT NULL)"}
}

// A shop is the server of payments in a process.
type shop struct {
	w      *work
	server *http.Server
	client *http.Client
	url    string
}

// openShop starts a server on this host, with the middleware around its handler.
func openShop(w *work) (*shop, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &shop{w: w, client: &http.Client{Transport: new(http.Transport)}, url: "http://" + listener.Addr().String() + "/pay"}
	once := ratelimit.OneAtATime(w.session, "payments", ratelimit.WithWait(50*time.Millisecond, 100))
	user := func(*http.Request) (string, error) { return "user", nil }
	payments := idempotency.New(w.direct, once, user,
		idempotency.WithMaxIdle(w.config.Lease), idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	mux := http.NewServeMux()
	// The hosts of the processes differ by their ports alone, which do not count.
	mux.Handle("POST /pay", payments.Handler(http.HandlerFunc(s.pay)))
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	go func() { _ = s.server.Serve(listener) }() // ends with close
	return s, nil
}

// close ends the server and the connections of its clients.
func (s *shop) close() error {
	s.client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	return errors.Join(s.server.Shutdown(ctx), s.server.Close())
}

// pay is the handler. Its effect is a row in the transaction of the middleware.
// Some fail after their effect, and some decline.
func (s *shop) pay(rw http.ResponseWriter, r *http.Request) {
	number := s.w.number()
	rng := rand.New(rand.NewPCG(s.w.config.Seed, uint64(number)))
	body, err := io.ReadAll(r.Body)
	tx, ok := idempotency.Tx(r.Context())
	if err != nil || !ok {
		http.Error(rw, "there is no payload, or no transaction", http.StatusInternalServerError)
		return
	}
	rw.Header().Set(receipt, strconv.FormatInt(number, 10))
	key, _, _ := strings.Cut(string(body), " ")
	if _, err := tx.ExecContext(r.Context(), fmt.Sprintf("INSERT INTO payments (idem_key, number) VALUES (%s, %d)", key, number)); err != nil {
		http.Error(rw, "the effect failed", http.StatusServiceUnavailable)
		return
	}
	switch n := rng.IntN(100); {
	case n < 3: // longer than a heartbeat: a fault may meet it
		_ = Pause(r.Context(), time.Duration(rng.Int64N(int64(s.w.config.Lease))))
	case n < 30:
		_ = Pause(r.Context(), time.Duration(rng.Int64N(int64(20*time.Millisecond))))
	}
	switch n := rng.IntN(100); {
	case n < 8:
		rw.WriteHeader(http.StatusInternalServerError)
	case n < 12:
		rw.WriteHeader(http.StatusPaymentRequired)
	default:
		rw.WriteHeader(http.StatusCreated)
	}
	_, _ = io.WriteString(rw, "receipt "+strings.Repeat("x", rng.IntN(200)))
}

// ask sends a request. The status is 0 if there is no whole response.
func (s *shop) ask(ctx context.Context, key int64, other bool) (status int, number int64, digest string, replayed bool) {
	payload := fmt.Sprintf("%d", key)
	if other {
		payload += " and more"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(payload))
	if err != nil {
		return 0, 0, "", false
	}
	r.Header.Set("Idempotency-Key", fmt.Sprintf("%q", strconv.FormatInt(key, 10)))
	resp, err := s.client.Do(r)
	if err != nil {
		return 0, 0, "", false
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, 0, "", false
	}
	number, _ = strconv.ParseInt(resp.Header.Get(receipt), 10, 64)
	if number == 0 {
		return resp.StatusCode, 0, "", false
	}
	sum := sha256.Sum256(bytes.Join([][]byte{[]byte(resp.Header.Get("Content-Type")), body}, []byte("\n")))
	return resp.StatusCode, number, hex.EncodeToString(sum[:8]), resp.Header.Get("Idempotency-Replayed") != ""
}

// paid is what payments have stored.
func paid(ctx context.Context, db *sql.DB) (all []check.Paid, err error) {
	rows, err := db.QueryContext(ctx, "SELECT idem_key, number FROM payments")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var p check.Paid
		if err := rows.Scan(&p.Key, &p.Number); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, rows.Err()
}
