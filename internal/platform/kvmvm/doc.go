// Package kvmvm runs a guest in ring 3 of a bare KVM virtual machine: one
// memory slot in which guest-physical equals guest-virtual, one virtual CPU, no
// interrupt controller, no devices, no guest kernel.
//
// The guest's SYSCALL instruction lands on a stub of two instructions whose
// port write is one VM exit; an exception lands on a stub that does the same.
// Everything else is on the other side of package platform.
//
// Two families of KVM behave differently and both work; which one it is a guest
// of our own shows when the platform is opened, by the code segment that its
// system call arrives with:
//
//   - hardware KVM (VT-x, SVM): SYSCALL enters ring 0, as the SDM says;
//   - kvm-pvm (KVM without hardware, as inside some virtual machines): SYSCALL
//     goes to the stub but stays in ring 3, and ring 0 is emulated instruction
//     by instruction, without SSE. So the stubs are short and use none, their
//     page may be executed by the guest, and the task's I/O bitmap opens the
//     two ports.
//
// A guest that jumps into the stub itself only makes a system call or faults.
// One that brings kvm-pvm to take a system call to ring 0 after all is put back
// into ring 3 before it goes on.
package kvmvm
