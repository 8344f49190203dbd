// Package mcp serves sandboxes to clients of the Model Context Protocol: the
// tool execute_code of package codeact, and reset_sandbox.
//
//	client ── stdio, or HTTP ([Handler]) ── Server ── session ── codeact.Tool ── router.Router
//
// Each session of a client has a sandbox of its own, in a conversation that no client
// can choose, and loses it when the session ends: when the client says so or
// closes its end, when it has been idle for too long, and when the server ends.
// What runs then is stopped. Closing a Server waits for all of it.
//
// With [Config.KeepState] a session is one call to the router from its first
// program to its last, so that names stay; otherwise each program is a call of
// its own, and the router cleans up after it.
//
// The calls of a session follow each other. Those of one connection do so in the
// order in which they arrive ([Server.Serve]); over HTTP each has a connection of its
// own, and those that are made at the same time have no order. A client that cancels
// a program gets no answer to it, so that the next answer tells of what that cost.
//
// Operators remove sandboxes under [Server.Quiesce] and [Server.Purge]: what runs
// there is stopped, and its model is told that the sandbox is gone.
package mcp
