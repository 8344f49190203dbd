// Package vfs is the guest's file tree: a read-only base that every guest
// shares (the image) under a bounded writable layer in memory.
package vfs
