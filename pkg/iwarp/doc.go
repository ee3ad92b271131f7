// Package iwarp is a user-space iWARP stack: RDMA verbs over TCP.
package iwarp
