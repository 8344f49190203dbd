// Package kvm makes the ioctl calls of the Linux kernel's virtual machine
// interface and nothing else: no policy, no state of its own. Its numbers are
// generated from the kernel's headers by mkconsts. The interface is described
// in the kernel's Documentation/virt/kvm/api.rst.
package kvm

//go:generate go run ./mkconsts
