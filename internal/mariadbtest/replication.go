package mariadbtest

import "fmt"

// ReplicationOptions are the options of a server that others may replicate from
// and that may replicate from others. Each server has its own id.
func ReplicationOptions(id int) []string {
	return []string{
		"--log-bin=bin", fmt.Sprintf("--server-id=%d", id), "--log-slave-updates",
		"--relay-log=relay", "--gtid-strict-mode=OFF", "--slave-net-timeout=5",
	}
}

// Follow makes s a replica of primary, from the first change on. A name is that
// of the replication connection; "" is the default one.
func (s *Server) Follow(primary *Server, name string) error {
	if err := primary.Execute("CREATE USER IF NOT EXISTS replicator@'%'; GRANT REPLICATION SLAVE ON *.* TO replicator@'%'"); err != nil {
		return err
	}
	return s.Execute(fmt.Sprintf("CHANGE MASTER '%[1]s' TO MASTER_HOST='127.0.0.1', MASTER_PORT=%[2]d, MASTER_USER='replicator',"+
		" MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1; START SLAVE '%[1]s'", name, primary.Port()))
}
