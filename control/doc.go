// Package control lets an operator see which sandboxes a host has and remove
// exactly those, while the host stays the authority. It speaks version 1 of the
// control protocol, with consoles and hosts in Python too.
//
// In a host:
//
//	Monitor   wraps a backend: keeps what the router admitted, watches the workers
//	Host      the host's [Control]: inventory, disposal and purge under the
//	          host's own quiescence
//	Server    offers a Control on a loopback port and announces it in a folder
//	          that only this user can read
//
// In a console:
//
//	Discover  reads the folder and asks every host who it is
//	Client    the Control of one host, over HTTP
//	Composite the Control of all hosts together
//
// Nothing listens until Server.Start. Loopback is this machine, not this user:
// any local process that can reach the port can use it, so a host starts a
// server only when its operator said so. A reset or replacement gives a
// sandbox a new id; disposal names the id, so that a stale screen cannot remove
// the newer one. What could not be observed is never reported as done, and what
// happens after a time-out is never made a success later.
package control
