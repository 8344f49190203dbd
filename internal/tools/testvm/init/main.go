//go:build linux

// Command init is process 1 of the test VM: it sets up a small Linux, runs the
// steps of the plan, reports, and turns the machine off.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/plan"
)

// reports is the serial port that leads to the host; the kernel's messages
// have the first one.
const reports = "/dev/ttyS1"

func main() {
	if err := boot(); err != nil {
		fmt.Println("init:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	fmt.Println("init: the machine does not turn off")
}

func boot() error {
	if err := mounts(); err != nil {
		return err
	}
	out, err := open(reports)
	if err != nil {
		return err
	}
	if err := work(out); err != nil {
		return say(out, plan.Report{Kind: plan.Failed, Words: err.Error()})
	}
	return say(out, plan.Report{Kind: plan.Done})
}

func work(out *os.File) error {
	text, err := os.ReadFile(plan.File)
	if err != nil {
		return err
	}
	var p plan.Plan
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("%s: %w", plan.File, err)
	}
	for _, m := range p.Modules {
		if err := load(m); err != nil {
			return fmt.Errorf("module %s: %w", m, err)
		}
	}
	if _, err := os.Stat("/dev/kvm"); err != nil {
		return fmt.Errorf("the kernel offers no KVM: %w", err)
	}
	for i, s := range p.Steps {
		if err := say(out, plan.Report{Kind: plan.Start, N: i}); err != nil {
			return err
		}
		status, err := run(s, p.Env, out)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Path, err)
		}
		if err := say(out, plan.Report{Kind: plan.End, N: i, Status: status}); err != nil {
			return err
		}
	}
	return nil
}

// say writes a report on a line of its own, whatever a test printed last.
func say(out *os.File, r plan.Report) error {
	_, err := out.WriteString("\n" + r.String())
	return err
}

func mounts() error {
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

// open opens a serial port without echo and without translation of line ends.
func open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	fd := int(f.Fd())
	mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	mode.Iflag, mode.Oflag, mode.Lflag = 0, 0, 0
	mode.Cflag = unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200
	return f, unix.IoctlSetTermios(fd, unix.TCSETS, mode)
}

func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// run gives the status of a step; an error means that it could not be started.
func run(s plan.Step, env []string, out *os.File) (int, error) {
	cmd := exec.Command(s.Path, s.Args...)
	cmd.Dir = s.Dir
	cmd.Env = append([]string{"HOME=/tmp", "TMPDIR=/tmp", "PATH=/bin"}, env...)
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}
