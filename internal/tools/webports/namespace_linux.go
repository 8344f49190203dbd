package webports

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// stageEnv tells the test program where it is.
const stageEnv = "MAF_SANDBOX_TEST_WEBPORTS"

// The stages: in the new namespaces with the capability to set them up, and then
// without it, as the tests would be outside.
const (
	stageSetUp = "set-up"
	stageReady = "ready"
)

// unprivilegedPorts is the file with the first port that everybody may listen on,
// of the network namespace of whoever opens it.
const unprivilegedPorts = "/proc/sys/net/ipv4/ip_unprivileged_port_start"

// setUpFailed is the status of a set-up that did not succeed, which no test
// program has.
const setUpFailed = 113

func inside() bool {
	if os.Getenv(stageEnv) == stageSetUp {
		fmt.Fprintln(os.Stderr, "webports:", setUp())
		os.Exit(setUpFailed)
	}
	return os.Getenv(stageEnv) == stageReady
}

// again runs this program once more in new namespaces, as the same user, and
// gives its status.
func again() (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	// The parent's death is that of the thread that started the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), stageEnv+"="+stageSetUp)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_NET_ADMIN},
		Pdeathsig:   syscall.SIGKILL,
	}
	err = cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = nil
	}
	if err != nil {
		return 0, err
	}
	status := cmd.ProcessState.ExitCode()
	switch {
	case status == setUpFailed:
		return 0, errors.New("it could not be set up")
	case status < 0:
		status = 2 // as go test has it of a signal
	}
	return status, nil
}

// setUp brings the loopback interface up, opens the ports, gives the capability
// up and becomes the test program; it returns only with an error.
func setUp() error {
	if err := up("lo"); err != nil {
		return fmt.Errorf("bring loopback up: %w", err)
	}
	if err := os.WriteFile(unprivilegedPorts, []byte("0"), 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	if err := os.Setenv(stageEnv, stageReady); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}

// up brings a network interface up.
func up(name string) error {
	if _, err := net.InterfaceByName(name); err != nil {
		return err
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }()
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, request)
}
