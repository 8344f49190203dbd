// Package vfs is a guest's file tree: a read-only base that all guests share
// (the image) with a bounded writable layer in memory.
//
// The layer is not laid over the base: nothing is copied up. The base is
// read-only (EROFS); the folders /tmp and /work belong to the guest, and /dev
// holds the memory devices. Base and layer are two file systems with their own
// device numbers, so a rename or a link from one to the other fails with EXDEV.
//
// The package knows no system call numbers and no guest memory: Go values go
// in, errno values come out (0 is success), in the order Linux checks for them.
//
// A guest makes one system call at a time, so there are no locks here: the
// methods of a tree and of its inodes are called by one goroutine at a time.
// Only the Base is shared between guests.
//
// Guests are hostile. What a guest can make the host hold is bounded by Limits,
// and no operation recurses: the depth of folders is bounded as well.
package vfs
