// Package vfs is a guest's file tree: a read-only base that all guests share
// (the image) under a bounded writable layer in memory.
//
// Nothing of the base is ever copied up: its files and folders answer EROFS to
// every change, and its file contents are handed out as they are. The writable
// layer has two roots, /tmp and /work; /dev holds the memory devices. Names,
// links, permissions and errors are those of Linux (fs/namei.c), for a process
// that is not root and owns the writable layer.
//
// The package knows neither system call numbers nor guest memory: Go values
// go in, and a [syscall.Errno] comes out, 0 meaning success.
//
// # Memory
//
// [Limits] bounds the layer. Contents are charged page by page, holes cost
// nothing; every name and every unlinked file still open costs one inode. What
// a guest can make the host hold is therefore Limits.Bytes plus about a
// kilobyte for each of Limits.Inodes. Folders nest at most 256 deep, so that
// nothing that walks the tree is unbounded.
//
// # Concurrency
//
// There are no locks. A tree belongs to one guest, whose system calls are
// answered one at a time; only the base is shared, and it must be safe for
// concurrent reading.
package vfs
