// Package vfs is the guest's file tree: a read-only base that every guest
// shares (the image) under a bounded writable layer in memory.
//
// Nothing of the base is ever copied up: its files and folders answer EROFS to
// every change. The writable layer starts with /tmp and /work, beside the
// memory devices in /dev. Errors are Linux errno values, 0 meaning none.
//
// A tree belongs to one guest, whose system calls are answered one at a time:
// there are no locks.
package vfs
