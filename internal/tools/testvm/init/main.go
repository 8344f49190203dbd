//go:build linux

// Command init is process 1 of the test VM: it sets up a small Linux, runs the
// steps of the plan, reports, and turns the machine off. For steps that need
// systemd it becomes systemd, which runs this program once more, as a service.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/plan"
)

// reports is the serial port that leads to the host; the kernel's messages
// have the first one.
const reports = "/dev/ttyS1"

func main() {
	start := boot
	if len(os.Args) > 1 && os.Args[1] == plan.Agent {
		start = serve
	}
	if err := start(); err != nil {
		fmt.Println("init:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	fmt.Println("init: the machine does not turn off")
}

// boot is process 1. It returns when the machine is to be turned off.
func boot() error {
	if err := mounts(); err != nil {
		return err
	}
	out, err := open(reports)
	if err != nil {
		return err
	}
	left, err := work(out)
	if err == nil && left {
		err = becomeSystemd()
	}
	return finish(out, err)
}

// serve runs the steps that need systemd.
func serve() error {
	out, err := open(reports)
	if err != nil {
		return err
	}
	p, err := readPlan()
	if err == nil {
		err = run(p, true, out)
	}
	return finish(out, err)
}

func finish(out *os.File, err error) error {
	if err != nil {
		return say(out, plan.Report{Kind: plan.Failed, Words: err.Error()})
	}
	return say(out, plan.Report{Kind: plan.Done})
}

// work runs the steps that need no systemd and says whether others are left.
func work(out *os.File) (left bool, err error) {
	p, err := readPlan()
	if err != nil {
		return false, err
	}
	for _, m := range p.Modules {
		if err := load(m); err != nil {
			return false, fmt.Errorf("module %s: %w", m, err)
		}
	}
	if err := machine(); err != nil {
		return false, err
	}
	for _, s := range p.Steps {
		left = left || s.Variant.NeedsSystemd()
	}
	return left, run(p, false, out)
}

func readPlan() (plan.Plan, error) {
	var p plan.Plan
	text, err := os.ReadFile(plan.File)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("%s: %w", plan.File, err)
	}
	return p, nil
}

// say writes a report on a line of its own, whatever a test printed last.
func say(out *os.File, r plan.Report) error {
	_, err := out.WriteString("\n" + r.String())
	return err
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
