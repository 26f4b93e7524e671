package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	if err := copyRunning(data, c.data(), h.own); err != nil {
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

// These files belong to a running server. A standby must not have them, or
// makes its own.
var (
	ownContents = []string{"pg_dynshmem", "pg_notify", "pg_replslot", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans", "pg_wal"}
	ownFiles    = []string{"postmaster.pid", "postmaster.opts"}
)

// copyRunning copies the data directory from of a running server to the new
// directory to, and calls own for each copy. A file that disappears meanwhile
// is left out.
func copyRunning(to, from string, own func(path string) error) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != from {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		top, _, below := strings.Cut(rel, string(filepath.Separator))
		if below && slices.Contains(ownContents, top) {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if slices.Contains(ownFiles, rel) || strings.HasPrefix(entry.Name(), "pgsql_tmp") {
			return nil
		}
		target := filepath.Join(to, rel)
		if entry.IsDir() {
			return errors.Join(os.Mkdir(target, 0o700), own(target))
		}
		err = copyFile(target, path, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, own(target))
	})
}
