// Package linux is the guest's kernel: it answers the Linux system calls of
// one process over a platform (package platform) and a file tree in memory
// (package vfs). It knows no virtual machine and can be tested on a plain byte
// slice.
//
// # Rules
//
// Everything the guest passes is hostile. Guest memory is reached only through
// platform.Memory, which copies and checks; a value is copied once and the copy
// is validated; sizes are bounded before anything is allocated for them.
// A system call that is missing answers ENOSYS, one that cannot be offered here
// answers the errno from which CPython makes an ordinary exception. Nothing
// pretends to have worked.
//
// A thread is a value (registers, segment bases, extended state, signal mask);
// descriptors point at open files behind one interface.
package linux
