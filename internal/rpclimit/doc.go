// Package rpclimit holds what packages grpcmw and connectmw share:
//
//   - how a call ends that a limit has rejected or interrupted,
//   - streams whose locks may come with their first message,
//   - keys from fields of messages,
//   - the services that are not limited.
//
// It knows neither grpc-go nor connect-go. A program with one of them does not
// compile the other.
package rpclimit

import "strings"

// Unlimited reports whether procedure, such as "/grpc.health.v1.Health/Check",
// is of a service that is not limited by default. Balancers and tools make such
// calls, which do no work and carry no user. The service ends at the last
// slash, as in package grpc: a proxy forwards methods that clients make up.
func Unlimited(procedure string) bool {
	service := strings.TrimPrefix(procedure, "/")
	switch service[:max(0, strings.LastIndexByte(service, '/'))] {
	case "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection":
		return true
	}
	return false
}
