// Package image captures a Python that is on the machine into one
// content-addressed file, keeps such files in a private store, and reads them.
//
// An image holds an interpreter, its ELF loader, the libraries it needs, its
// standard library with byte code, time zones and, when asked for, the
// packages of a virtual environment. Nothing else of the host is in it, and
// files appear under neutral paths: whatever the installation prefix was on
// the host, it is /usr inside.
//
// The file is a Merkle tree: its ID is the SHA-256 of the manifest, the
// manifest holds the digest of the index, the index that of every file. See
// format.go for the layout.
package image
