package worker

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/helper"
	"github.com/maf-sandbox/maf-sandbox-go/internal/jail"
	"github.com/maf-sandbox/maf-sandbox-go/internal/kvm"
)

// Role is the name of the helper (package helper) that is a worker. It is given
// one descriptor, its connection.
const Role = "worker"

func init() { helper.Register(Role, 1, Main) }

// Main is the worker process. It serves the stream socket that is descriptor
// helper.First, jailed as soon as its machine is there.
func Main() error {
	f := os.NewFile(helper.First, "connection")
	conn, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return fmt.Errorf("connection: %w", err)
	}
	defer func() { _ = conn.Close() }()
	return Serve(conn, Config{Open: Open, Seal: seal})
}

// seal jails the process with the descriptors that it has now: its connection,
// its machine, and the standard ones.
func seal() error {
	fds, err := descriptors()
	if err != nil {
		return err
	}
	_, err = jail.Enter(jail.Spec{Keep: fds, Ioctls: kvm.WorkIoctls()})
	return err
}

// descriptors are all that are open, without the one it takes to find out.
func descriptors() ([]int, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return nil, fmt.Errorf("/proc/self/fd has %q", e.Name())
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			fds = append(fds, fd)
		}
	}
	return fds, nil
}
