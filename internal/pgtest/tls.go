package pgtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"strings"
	"time"
)

// WithTLS makes the server offer TLS, with a certificate that no authority has
// signed. The DSNs of [Cluster.DSN] still connect without TLS: see [OverTLS].
func WithTLS() Option {
	return func(c *Cluster) {
		c.settings["ssl"] = "on"
		c.tls = true
	}
}

// OverTLS returns a DSN of this package with TLS. The client does not check who
// signed the certificate.
func OverTLS(dsn string) string {
	return strings.Replace(dsn, "sslmode=disable", "sslmode=require", 1)
}

// writeCertificate writes a key and a certificate under the names that the
// server looks for.
func writeCertificate(h *home) error {
	certificate, key, err := SelfSigned()
	if err != nil {
		return err
	}
	return errors.Join(h.write("data/server.crt", certificate), h.write("data/server.key", key))
}

// SelfSigned makes a certificate for 127.0.0.1, and its key, in PEM.
func SelfSigned() (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	certificate, err = x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	key, err = x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), nil
}
