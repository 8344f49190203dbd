// Package microvm is the backend of package sandbox that gives each sandbox a
// micro-VM in a jailed worker process of its own.
//
//	your program ── Backend ── realm (owner's lock, sandboxes by key and kind)
//	                  │
//	                  ├─ pool: one supervisor process for each image ── starts, watches, kills
//	                  │                                                   │
//	                  └─ Sandbox ─────── socket (package wire) ──────── worker: one VM
//
// New checks the whole configuration and starts nothing. The first Acquire takes
// the ownership of the configured namespace, captures the machine's Python if no
// image is named, and starts a supervisor; Prepare does that ahead of time, so
// that spare workers are ready. Backends of one process that name the same
// namespace share its sandboxes, as the protocol wants: a purge reaches them all.
//
// Supervisor and workers are your own program, executed again: importing this
// package is what makes it able to be one. That happens while this package is
// initialised, before your main function, and after the init functions of its
// imports and of whatever else Go initialises earlier. Files that those open are
// taken away from helpers; what they read into memory is there. A host whose
// init functions read secrets names a small program of its own as
// Config.WorkerPath.
//
// A sandbox whose spec lists hosts can reach them by HTTP: its program asks, the
// question comes over the socket, and this process (package egress inside)
// decides, looks the name up, judges the address and makes the request. Workers
// have no network.
//
// A sandbox whose spec has tools can call them, by call_tool(name, argument=value):
// the call comes the same way, its arguments are checked here, and the function
// of the spec that acquired the sandbox last answers, told for whom by its context
// (sandbox.ToolCallerOf). A call ends with its run, whether the function does or
// not; disposing of a sandbox does not wait for functions that go on.
//
// What an error means for the sandbox, sandbox.Usable tells. A program that
// reaches its time or output limit, or whose caller gives up, is interrupted
// first, as by Ctrl-C, and keeps its sandbox when it obeys; Config.Overrun has
// it cost the sandbox always.
package microvm
