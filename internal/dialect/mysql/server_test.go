package mysql

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/leaktest"
)

func TestServerFits(t *testing.T) {
	t.Parallel()
	variables := func(pairs ...string) map[string]string {
		m := map[string]string{"read_only": "OFF", "wsrep_on": "OFF"}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	tests := []struct {
		name      string
		version   string
		database  string
		variables map[string]string
		says      string // "" if it fits
	}{
		{"MySQL 8.4", "8.4.3", "app", variables("super_read_only", "OFF", "innodb_read_only", "OFF"), ""},
		{"MySQL 8.0.16", "8.0.16-log", "app", variables(), ""},
		{"MySQL 9", "9.1.0", "app", variables("group_replication_single_primary_mode", "ON"), ""},
		{"MariaDB 10.5", "10.5.0-MariaDB", "app", variables(), ""},
		{"MariaDB 10.11 behind MaxScale", "5.5.5-10.11.14-MariaDB-0+deb12u2", "app", variables(), ""},
		{"MariaDB 12, whose variable has more values", "12.0.2-MariaDB", "app", variables("read_only", "NO_LOCK"), "read-only"},
		{"MySQL 8.0.15", "8.0.15", "app", variables(), "8.0.16"},
		{"MySQL 5.7", "5.7.44", "app", variables(), "8.0.16"},
		{"MariaDB 10.4", "10.4.34-MariaDB", "app", variables(), "10.5"},
		{"NDB Cluster", "8.0.36-cluster", "app", variables(), "NDB"},
		{"NDB Cluster 7.6", "5.7.44-ndb-7.6.30", "app", variables(), "NDB"},
		{"no version", "", "app", variables(), "8.0.16"},
		{"no database", "8.4.3", "", variables(), "connection string"},
		{"replica", "8.4.3", "app", variables("read_only", "ON"), "connect to the primary"},
		{"super_read_only", "8.4.3", "app", variables("super_read_only", "ON"), "connect to the primary"},
		{"reader of Aurora", "8.0.39", "app", variables("innodb_read_only", "ON"), "connect to the primary"},
		{"Galera", "10.11.14-MariaDB", "app", variables("wsrep_on", "ON"), "Galera"},
		{"Galera that says wsrep_on=OFF", "10.11.14-MariaDB", "app", variables("wsrep_provider_name", "Galera"), "Galera"},
		{"MariaDB without Galera's library", "10.11.14-MariaDB", "app", variables("wsrep_provider_name", "none"), ""},
		{"several primaries", "8.4.3", "app", variables("group_replication_single_primary_mode", "OFF"), "single_primary_mode=ON"},
	}
	for _, tt := range tests {
		server := server{
			version: tt.version, mariadb: strings.Contains(tt.version, "MariaDB"),
			database: []byte(tt.database), variables: tt.variables, status: tt.variables,
		}
		err := server.fit()
		if tt.says == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		var failure *dialect.Failure
		permanent := tt.database == "" // the other servers do not exclude
		if !errors.As(err, &failure) || failure.Permanent != permanent || !permanent && failure.Kind != dialect.NotExclusive || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want a Failure that says %q; permanent: %t", tt.name, err, tt.says, permanent)
		}
	}
}

// A server that another one feeds is refused only where nothing speaks for a
// primary.
func TestServerUnfed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                        string
		running, sources, connected string
		log                         string // the state of the binary log
		fed                         bool
	}{
		{"replica", "ON", "1", "0", "", true},
		{"replica that writes a log", "ON", "1", "0", "0-1-42,1-12-7", true},
		{"MySQL, which does not tell", "", "", "", "", false},
		{"primary", "OFF", "0", "3", "0-2-42", false},
		{"source gone", "OFF", "1", "0", "", false},
		{"several sources", "ON", "2", "0", "", false},
		{"feeds another one", "ON", "1", "1", "", false},
		{"own changes", "ON", "1", "0", "0-1-42,0-2-43", false},
	} {
		server := server{
			variables: map[string]string{"server_id": "2", "gtid_binlog_state": tt.log},
			status:    map[string]string{"slave_running": tt.running, "slaves_running": tt.sources, "slaves_connected": tt.connected},
		}
		if err := server.unfed(); (err != nil) != tt.fed {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// Two servers have different identities, whatever they differ in. One server
// always has the same identity.
func TestServerIdentity(t *testing.T) {
	t.Parallel()
	seen := map[int64]string{}
	for _, variables := range []map[string]string{
		{"server_id": "1", "hostname": "a", "port": "3306"},
		{"server_id": "2", "hostname": "a", "port": "3306"},
		{"server_id": "1", "hostname": "b", "port": "3306"},
		{"server_id": "1", "hostname": "a", "port": "3307"},
		{"server_id": "1", "hostname": "a", "port": "3306", "server_uuid": "ac6f"},
	} {
		id := server{variables: variables}.identity()
		if other, ok := seen[id]; ok || id <= 0 {
			t.Errorf("%v: identity %d, as of %s", variables, id, other)
		}
		if again := (server{variables: variables}).identity(); again != id {
			t.Errorf("%v: identity %d, and then %d", variables, id, again)
		}
		seen[id] = "another"
	}
}

// A statement is shorter than the server allows, even if that is very short.
func TestLongestStatement(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		packet string
		want   int
	}{
		{"1024", 512},
		{"65536", 64512},
		{"1073741824", 4<<20 - 1024},
		{"", 4<<20 - 1024},
	} {
		if got := (server{variables: map[string]string{"max_allowed_packet": tt.packet}}).longest(); got != tt.want {
			t.Errorf("max_allowed_packet %q: %d, want %d", tt.packet, got, tt.want)
		}
	}
}

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }
