package ceiling

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cgroup"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

// Probe looks at what this machine offers, strongest first. Nothing is started.
func Probe() []Offer {
	return []Offer{probeCgroup(cgroup.DefaultRoot), probeSystemd(systemBus, userBus()), {Enforcement: microvm.EnforceRlimit}}
}

func probeCgroup(path string) Offer {
	o := Offer{Enforcement: microvm.EnforceCgroup}
	if o.Err = version2(); o.Err != nil {
		return o
	}
	root, err := cgroup.Open(path)
	if err == nil {
		err = root.Memory()
		_ = root.Close() // it was only looked at
	}
	var setup *cgroup.SetupError
	if errors.As(err, &setup) {
		o.Mend = setup.Mend
	}
	o.Err = err
	return o
}

// Where systemd listens, the system's manager and the user's.
const systemBus = "/run/dbus/system_bus_socket"

func userBus() string {
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(runtime) {
		runtime = fmt.Sprintf("/run/user/%d", os.Geteuid())
	}
	return filepath.Join(runtime, "bus")
}

// hierarchy is where systemd mounts the control groups of version 2.
const hierarchy = "/sys/fs/cgroup"

// version2 says whether this machine's control groups are of version 2, without
// which nothing can be delegated.
func version2() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(hierarchy, &fs); err != nil {
		return fmt.Errorf("control groups: %s: %w", hierarchy, err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return fmt.Errorf("%s does not have control groups of version 2 (the kernel's parameter systemd.unified_cgroup_hierarchy=1 asks for them)", hierarchy)
	}
	return nil
}

// probeSystemd looks for what package cgroup needs of systemd. The system's
// manager serves root only: what it makes for others belongs to root.
func probeSystemd(system, user string) Offer {
	o := Offer{Enforcement: microvm.EnforceSystemd}
	if o.Err = version2(); o.Err != nil {
		return o
	}
	buses := []string{user}
	if os.Geteuid() == 0 {
		buses = append(buses, system)
	}
	for _, bus := range buses {
		if unix.Access(bus, unix.W_OK) == nil {
			return o
		}
	}
	o.Err = fmt.Errorf("no message bus of systemd at %s", buses[0])
	if os.Geteuid() != 0 {
		o.Mend = []string{"sudo loginctl enable-linger \"$USER\""}
	}
	return o
}
