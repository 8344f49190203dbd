// Package worker is the process that holds one sandbox: it opens the machine,
// gives up everything it no longer needs, and then serves one connection
// (package wire) until that ends.
//
// A worker trusts nobody: not its guest, which is the engine's concern, and not
// its host more than the protocol says. It holds no state of the sandbox but the
// machine; when its connection ends, whatever the reason, it is done.
package worker
