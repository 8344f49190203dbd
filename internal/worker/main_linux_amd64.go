package worker

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/helper"
	"github.com/maf-sandbox/maf-sandbox-go/internal/jail"
	"github.com/maf-sandbox/maf-sandbox-go/internal/kvm"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// Role is the name of the helper (package helper) that is a worker. It is given
// two stream sockets, the line of calls and the side line.
const Role = "worker"

const (
	sideFD  = helper.First + 1
	givenFD = 2
)

// lookout is how long a worker looks for the next call before it sleeps: a reset
// often follows a run, and a run a reset.
const lookout = 50 * time.Microsecond

func init() { helper.Register(Role, givenFD, Main) }

// Main is the worker process, jailed as soon as its machine is there.
func Main() error {
	calls, err := wire.NewStream(helper.First, lookout)
	if err != nil {
		return fmt.Errorf("line of calls: %w", err)
	}
	f := os.NewFile(sideFD, "side line")
	side, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return fmt.Errorf("side line: %w", err)
	}
	defer func() { _ = side.Close() }()
	return Serve(calls, side, Config{Open: Open, Seal: seal})
}

// seal jails the process with the descriptors that it has now: its lines, its
// machine, and the standard ones.
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
