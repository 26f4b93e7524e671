package main

import (
	"context"
	"errors"
	"os"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// withDatabase calls do with the database that DATABASE_URL names, or one on a throwaway
// server, which is gone when it returns.
func withDatabase(do func(url string) error) (err error) {
	if url := os.Getenv("DATABASE_URL"); url != "" {
		return do(url)
	}
	server, err := pgtest.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	url, err := server.CreateDatabase(context.Background())
	if err != nil {
		return err
	}
	return do(url)
}
