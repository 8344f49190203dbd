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
	"github.com/maf-sandbox/maf-sandbox-go/internal/owner"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/kvmvm"
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

// probeFeatures runs the platform's self-test.
func probeFeatures() (int, []string, error) {
	p, err := kvmvm.New()
	if err != nil {
		return 0, nil, err
	}
	f, err := p.SelfTest()
	return f.Seen, f.Missing, errors.Join(err, p.Close())
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

func lockDir() (string, error) { return owner.Folder() }

func owned(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}

func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }
