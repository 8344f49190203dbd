package kvm

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// Device is where the kernel offers virtual machines.
const Device = "/dev/kvm"

// otherDevice is where Microsoft's hypervisor offers its own interface, when
// this machine is its root partition.
const otherDevice = "/dev/mshv"

// apiVersion is the only stable version of the interface
// (Documentation/virt/kvm/api.rst, section 4.1).
const apiVersion = 12

// Errors of Open.
var (
	// ErrAbsent: there is no KVM device.
	ErrAbsent = errors.New("kvm: " + Device + " does not exist")
	// ErrPermission: the device may not be opened by this user.
	ErrPermission = errors.New("kvm: " + Device + " may not be opened")
	// ErrVersion: the kernel's interface is not the stable one.
	ErrVersion = errors.New("kvm: unsupported API version")
)

// ErrInterrupted is returned by Run when a signal or ImmediateExit ended it.
var ErrInterrupted = errors.New("kvm: interrupted")

// System is an open KVM device.
type System struct {
	fd      int
	runSize int
}

// Open opens the KVM device.
func Open() (*System, error) {
	fd, err := unix.Open(Device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		if unix.Access(otherDevice, unix.F_OK) == nil {
			return nil, fmt.Errorf("%w; there is %s, which is another hypervisor's and not supported: %w", ErrAbsent, otherDevice, err)
		}
		return nil, fmt.Errorf("%w: %w", ErrAbsent, err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w: %w", ErrPermission, err)
	case err != nil:
		return nil, fmt.Errorf("kvm: open %s: %w", Device, err)
	}
	s := &System{fd: fd}
	v, err := ioctl(fd, kGetAPIVersion, 0)
	if err == nil && v != apiVersion {
		err = fmt.Errorf("%w %d", ErrVersion, v)
	}
	if err == nil {
		s.runSize, err = ioctl(fd, kGetVCPUMmapSize, 0)
	}
	if err == nil && s.runSize < runStructSize {
		err = fmt.Errorf("%w: kvm_run of %d bytes", ErrVersion, s.runSize)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return s, nil
}

// Close closes the device. Machines made from it live on.
func (s *System) Close() error { return unix.Close(s.fd) }

// Cap asks for an extension: 0 means absent.
func (s *System) Cap(n int) int {
	v, err := ioctl(s.fd, kCheckExtension, uintptr(n))
	if err != nil {
		return 0
	}
	return v
}

// CreateVM makes an empty virtual machine.
func (s *System) CreateVM() (*VM, error) {
	fd, err := ioctl(s.fd, kCreateVM, 0)
	if err != nil {
		return nil, fmt.Errorf("kvm: create VM: %w", err)
	}
	return &VM{fd: fd, runSize: s.runSize}, nil
}

// VM is a virtual machine.
type VM struct {
	fd      int
	runSize int
}

// Close releases the machine once its processors are closed too.
func (v *VM) Close() error { return unix.Close(v.fd) }

// CreateVCPU makes processor 0.
func (v *VM) CreateVCPU() (*VCPU, error) {
	fd, err := ioctl(v.fd, kCreateVCPU, 0)
	if err != nil {
		return nil, fmt.Errorf("kvm: create vCPU: %w", err)
	}
	run, err := unix.Mmap(fd, 0, v.runSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("kvm: map vCPU: %w", err)
	}
	return newVCPU(fd, run), nil
}

// Close releases the processor.
func (c *VCPU) Close() error {
	return errors.Join(unix.Munmap(c.run), unix.Close(c.fd))
}

// Run runs the guest until it exits and gives the exit reason.
func (c *VCPU) Run() (uint32, error) {
	// The blocking form of the system call, so that the Go scheduler can give
	// this thread's processor to other goroutines while the guest runs.
	_, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(c.fd), kRun, 0)
	switch e {
	case 0:
		return *c.exitReason, nil
	case syscall.EINTR, syscall.EAGAIN:
		return 0, ErrInterrupted
	}
	return 0, fmt.Errorf("kvm: run: %w", e)
}
