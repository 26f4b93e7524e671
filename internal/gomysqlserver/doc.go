// Package gomysqlserver tests the locks on go-mysql-server, a server in Go that
// speaks MySQL's protocol. Dolt is built on it.
//
// It is a module of its own, because compiling the server takes half a minute.
package gomysqlserver
