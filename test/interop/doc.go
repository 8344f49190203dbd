// Package interop runs this repository's control plane and its programs against
// the packages of the protocol's first implementation, which are in Python. It
// has tests only.
package interop
