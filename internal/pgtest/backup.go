package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// copyBackup makes the data directory of a standby of c. It copies the files of
// the running server between pg_backup_start and pg_backup_stop, which make such
// a copy usable. The standby fetches the write-ahead log of that time from its
// primary. pg_basebackup does the same, and is not installed everywhere.
func (c *Cluster) copyBackup(h *home, data string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.DSN(""))
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn) // ends a backup that is not stopped
	start, stop := "pg_backup_start('standby', true)", "pg_backup_stop(false)"
	if majorIn(c.programs.version) < 15 {
		start, stop = "pg_start_backup('standby', true, false)", "pg_stop_backup(false, false)"
	}
	if _, err := conn.Exec(ctx, "SELECT "+start); err != nil {
		return fmt.Errorf("pgtest: backup: %w", err)
	}
	if err := copyTree(data, c.data(), h.own, ofRunning); err != nil {
		return err
	}
	var label string
	if err := conn.QueryRow(ctx, "SELECT labelfile FROM "+stop).Scan(&label); err != nil {
		return fmt.Errorf("pgtest: backup: %w", err)
	}
	for name, content := range map[string]string{
		"backup_label":         label,
		"standby.signal":       "",
		"postgresql.auto.conf": "primary_conninfo = '" + c.DSN("") + "'\n",
	} {
		path := filepath.Join(data, name)
		file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		_, err = file.WriteString(content)
		if err := errors.Join(err, file.Close(), h.own(path)); err != nil {
			return err
		}
	}
	return nil
}

// ofRunning reports whether a path in a data directory belongs to the running
// server: a standby must not have it, or makes its own.
func ofRunning(path string) bool {
	top, _, below := strings.Cut(path, string(filepath.Separator))
	contents := []string{"pg_dynshmem", "pg_notify", "pg_replslot", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans", "pg_wal"}
	return below && slices.Contains(contents, top) || path == "postmaster.pid" || path == "postmaster.opts" ||
		strings.HasPrefix(filepath.Base(path), "pgsql_tmp")
}
