package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// ErrSystemd says that systemd could not be asked for a delegated group, or
// refused.
var ErrSystemd = errors.New("no delegated group from systemd")

// systemBus is the well-known address of the system's message bus.
const systemBus = "/run/dbus/system_bus_socket"

// The names of systemd's D-Bus interface (man 5 org.freedesktop.systemd1).
const (
	systemdName    = "org.freedesktop.systemd1"
	systemdPath    = dbus.ObjectPath("/org/freedesktop/systemd1")
	systemdManager = systemdName + ".Manager"
	systemdScope   = systemdName + ".Scope"
)

// Scope is a transient unit of systemd around processes of ours, with a control
// group that is delegated to us. It ends by itself with its last process.
type Scope struct {
	// Unit is the unit's name.
	Unit string
	// Path is the folder of its control group, to be given to Settle.
	Path string
	// Manager says who made it: "user" or "system".
	Manager string
}

// StartScope has systemd put processes of ours into a new scope named
// "maf-sandbox-NAME.scope", with delegation. The user's own manager is asked
// first, as what it makes belongs to the user; the system's manager is for root:
// what it makes for others belongs to root (measured with systemd 252), and
// polkit is in the way. All processes must be this user's.
//
// The call goes on when the processes are in the group.
func StartScope(ctx context.Context, name string, pids ...int) (Scope, error) {
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(runtime) {
		runtime = fmt.Sprintf("/run/user/%d", os.Geteuid())
	}
	var errs []error
	for _, m := range []struct{ name, socket string }{
		{"user", filepath.Join(runtime, "bus")},
		{"system", systemBus},
	} {
		s, err := startScope(ctx, m.socket, name, pids)
		if err == nil {
			s.Manager = m.name
			return s, nil
		}
		errs = append(errs, fmt.Errorf("%s manager: %w", m.name, err))
	}
	return Scope{}, fmt.Errorf("%w: %w", ErrSystemd, errors.Join(errs...))
}

func startScope(ctx context.Context, socket, name string, pids []int) (Scope, error) {
	if err := checkName(name); err != nil {
		return Scope{}, err
	}
	if unix.Access(socket, unix.W_OK) != nil {
		return Scope{}, fmt.Errorf("no message bus at %s", socket)
	}
	// Not the library's search for a session bus: it would start one.
	conn, err := dbus.Connect("unix:path="+dbus.EscapeBusAddressValue(socket), dbus.WithContext(ctx))
	if err != nil {
		return Scope{}, fmt.Errorf("message bus at %s: %w", socket, err)
	}
	defer func() { _ = conn.Close() }()
	s := Scope{Unit: "maf-sandbox-" + name + ".scope"}
	if err := runJob(ctx, conn, s.Unit, pids); err != nil {
		return Scope{}, err
	}
	group, err := controlGroup(ctx, conn, s.Unit)
	if err != nil {
		return Scope{}, err
	}
	s.Path, err = groupFolder(group)
	return s, err
}

// property and auxiliary are systemd's a(sv) and a(sa(sv)).
type property struct {
	Name  string
	Value dbus.Variant
}

type auxiliary struct {
	Name       string
	Properties []property
}

// runJob starts the unit and waits until systemd says that it is done.
func runJob(ctx context.Context, conn *dbus.Conn, unit string, pids []int) error {
	// The subscription comes first, so that no answer is missed.
	signals := make(chan *dbus.Signal, 64)
	conn.Signal(signals)
	match := []dbus.MatchOption{
		dbus.WithMatchInterface(systemdManager), dbus.WithMatchMember("JobRemoved"), dbus.WithMatchObjectPath(systemdPath),
	}
	if err := conn.AddMatchSignalContext(ctx, match...); err != nil {
		return fmt.Errorf("listen to systemd: %w", err)
	}
	manager := conn.Object(systemdName, systemdPath)
	if err := manager.CallWithContext(ctx, systemdManager+".Subscribe", 0).Err; err != nil {
		return fmt.Errorf("listen to systemd: %w", err)
	}
	numbers := make([]uint32, len(pids))
	for i, pid := range pids {
		numbers[i] = uint32(pid)
	}
	properties := []property{
		{"Description", dbus.MakeVariant("maf-sandbox workers")},
		{"PIDs", dbus.MakeVariant(numbers)},
		{"Delegate", dbus.MakeVariant(true)},
		{"MemoryAccounting", dbus.MakeVariant(true)},
		// Left to itself, a failed scope would keep its name.
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
	}
	var job dbus.ObjectPath
	call := manager.CallWithContext(ctx, systemdManager+".StartTransientUnit", 0, unit, "fail", properties, []auxiliary{})
	if err := call.Store(&job); err != nil {
		return fmt.Errorf("start %s: %w", unit, err)
	}
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("start %s: %w", unit, ctx.Err())
		case s, ok := <-signals:
			if !ok {
				return fmt.Errorf("start %s: %w", unit, dbus.ErrClosed)
			}
			done, result := jobRemoved(s, job)
			if done && result != "done" {
				return fmt.Errorf("start %s: systemd's job ended with %q", unit, result)
			}
			if done {
				return nil
			}
		}
	}
}

// jobRemoved reads the signal JobRemoved(id, job, unit, result).
func jobRemoved(s *dbus.Signal, job dbus.ObjectPath) (done bool, result string) {
	if s.Name != systemdManager+".JobRemoved" || len(s.Body) != 4 || s.Body[1] != job {
		return false, ""
	}
	result, ok := s.Body[3].(string)
	return ok, result
}

// controlGroup asks for a unit's control group.
func controlGroup(ctx context.Context, conn *dbus.Conn, unit string) (string, error) {
	var path dbus.ObjectPath
	manager := conn.Object(systemdName, systemdPath)
	if err := manager.CallWithContext(ctx, systemdManager+".GetUnit", 0, unit).Store(&path); err != nil {
		return "", fmt.Errorf("find %s: %w", unit, err)
	}
	var v dbus.Variant
	get := conn.Object(systemdName, path).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, systemdScope, "ControlGroup")
	if err := get.Store(&v); err != nil {
		return "", fmt.Errorf("find the group of %s: %w", unit, err)
	}
	group, ok := v.Value().(string)
	if !ok {
		return "", fmt.Errorf("the group of %s is a %T", unit, v.Value())
	}
	return group, nil
}

// mountPoint is where systemd mounts the control groups of version 2 when the
// machine has no others. With both versions (the "hybrid" layout) the memory
// controller belongs to version 1, and delegation is of no use.
const mountPoint = "/sys/fs/cgroup"

func groupFolder(group string) (string, error) {
	if !strings.HasPrefix(group, "/") || group == "/" || filepath.Clean(group) != group || len(group) > unix.PathMax {
		return "", fmt.Errorf("systemd gives the group %.200q", group)
	}
	return filepath.Join(mountPoint, group), nil
}
