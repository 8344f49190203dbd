package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/helper"
	"github.com/maf-sandbox/maf-sandbox-go/internal/jail"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// Role is the name of the helper (package helper) that is a worker. It is given
// two stream sockets, the line of calls and the side line, and the file of memory
// that the workers of a supervisor share for code.
const Role = "worker"

const (
	sideFD  = helper.First + 1
	codeFD  = helper.First + 2
	givenFD = 3
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
	m := &machine{code: os.NewFile(codeFD, "code")}
	return Serve(calls, side, Config{Open: m.serve, Seal: m.seal})
}

// serve is an Opener of this one machine.
func (m *machine) serve(ctx context.Context, s wire.Start) (Machine, wire.Ready, error) {
	r, err := m.open(ctx, s)
	if err != nil {
		return nil, wire.Ready{}, errors.Join(err, m.Close())
	}
	return m, r, nil
}

// seal jails the process with the descriptors that it has now: its lines, its
// machine, and the standard ones.
func (m *machine) seal() error {
	// Before any guest: whoever has it cannot change it once it is sealed, and here
	// it may not be.
	if err := m.code.Close(); err != nil {
		return fmt.Errorf("shared code: %w", err)
	}
	fds, err := jail.Descriptors()
	if err != nil {
		return err
	}
	needs := m.platform.Needs()
	data, err := dataLimit(needs.Children)
	if err != nil {
		return err
	}
	spec := jail.Spec{Keep: fds, Ioctls: needs.Ioctls, DataLimit: data}
	for _, c := range needs.Children {
		spec.Trace = append(spec.Trace, jail.Tracee(c))
	}
	_, err = jail.Enter(spec)
	return err
}
