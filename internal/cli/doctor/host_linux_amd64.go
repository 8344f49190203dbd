package doctor

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/kvm"
)

// probeKVM makes a virtual machine and a processor, and nothing runs in them.
func probeKVM() (KVMStep, error) {
	s, err := kvm.Open()
	switch {
	case errors.Is(err, kvm.ErrAbsent):
		return KVMNothing, err
	case errors.Is(err, kvm.ErrVersion):
		return KVMOpen, err
	case err != nil:
		return KVMPresent, err
	}
	defer func() { _ = s.Close() }() // nothing is kept
	vm, err := s.CreateVM()
	if err != nil {
		return KVMVersion, err
	}
	defer func() { _ = vm.Close() }()
	cpu, err := vm.CreateVCPU()
	if err != nil {
		return KVMVersion, err
	}
	return KVMReady, cpu.Close()
}

// deviceGroup names the group that may open the KVM device.
func deviceGroup() string {
	const usual = "kvm"
	var st unix.Stat_t
	if err := unix.Stat(kvm.Device, &st); err != nil || st.Gid == 0 {
		return usual
	}
	g, err := user.LookupGroupId(strconv.Itoa(int(st.Gid)))
	if err != nil {
		return usual
	}
	return g.Name
}

func owned(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}

func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }
