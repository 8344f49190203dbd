//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/plan"
)

// host is the machine's name.
const host = "testvm"

func mounts() error {
	if err := ownRoot(); err != nil {
		return err
	}
	for _, m := range []struct{ kind, dir, data string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devtmpfs", "/dev", ""},
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"tmpfs", "/run", "mode=755"},
		// Templates lie here; by itself a tmpfs takes half of the memory.
		{"tmpfs", "/tmp", "mode=1777,size=90%"},
		{"cgroup2", "/sys/fs/cgroup", ""},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	return nil
}

// ownRoot makes the root folder a mount of its own. The kernel's first one
// cannot be left by pivot_root, which services of systemd do.
func ownRoot() error {
	const dir = "/root-mount"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("/", dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	return errors.Join(unix.Chdir(dir), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."), unix.Chdir("/"))
}

func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// machine is what udev and an installer would do.
func machine() error {
	const kvm = "/dev/kvm"
	if _, err := os.Stat(kvm); err != nil {
		return fmt.Errorf("the kernel offers no KVM: %w", err)
	}
	if err := errors.Join(os.Chown(kvm, 0, plan.KVMGroup), os.Chmod(kvm, 0o660)); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(host)); err != nil {
		return err
	}
	if err := os.MkdirAll(plan.UserHome, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chown(plan.UserHome, plan.UserID, plan.UserID)
}
