// Package vdso makes the shared object that tells the guest the time without
// leaving the guest: what the C library finds through AT_SYSINFO_EHDR.
//
// A guest asks for the time often (CPython at every release of its lock), and
// an exit from the virtual machine costs a hundred times as much as the
// multiplication that replaces it here. The functions read the processor's
// time stamp counter and a page of four words that the platform writes, see
// Clock. Where they cannot answer (processor time clocks, no clock set) they
// make the real system call.
//
// The object is put together in Go from machine code that is generated from
// vdso_amd64.S.txt.
package vdso

//go:generate go run ./mkcode
