package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/ceiling"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

// Host is a machine as the checks see it. Every field is one small probe, so
// that tests can play any machine.
type Host struct {
	// Platform is GOOS/GOARCH.
	Platform string
	// CPU gives vendor, such as AuthenticAMD, and model.
	CPU func() (vendor, model string)
	// Kernel gives the release of the kernel.
	Kernel func() string
	// PagemapScan says whether the kernel has the PAGEMAP_SCAN call.
	PagemapScan func() bool
	// KVM goes through the steps of making a virtual machine and says how far
	// it came.
	KVM func() (reached KVMStep, err error)
	// Features runs a guest and counts the processor's features that it sees and
	// names those that it does not.
	Features func() (seen int, missing []string, err error)
	// User gives the user's name, Group that of the group of the KVM device.
	User, Group func() string
	// Python looks for the Python that would be captured.
	Python func(ctx context.Context) (string, error)
	// Cache gives the cache folder.
	Cache func() (string, error)
	// Limits looks for ways to bound a sandbox's process, strongest first.
	Limits func() []ceiling.Offer
	// LockDir gives the folder for the locks of those who own sandboxes.
	LockDir func() (string, error)
	// Worker runs a program in a sandbox as run does and says what it was.
	Worker func(ctx context.Context) (microvm.Info, error)
	// Images counts the images in the cache, Templates the templates.
	Images, Templates func(dir string) (int, error)
}

// KVMStep is a step on the way to a virtual machine.
type KVMStep int

// The steps, in order; a probe has reached one when the step succeeded.
const (
	KVMNothing KVMStep = iota
	KVMPresent         // the device is there
	KVMOpen            // it can be opened
	KVMVersion         // its interface is the stable one
	KVMReady           // a machine and a processor can be made
)

// Checks looks at everything. A check whose precondition failed is left out.
func (h Host) Checks(ctx context.Context) []Check {
	if h.Platform != "linux/amd64" {
		return []Check{{"system", Fail, h.Platform + " is not supported: sandboxes need Linux on x86-64", ""}}
	}
	vendor, model := h.CPU()
	checks := []Check{
		{"cpu", OK, model, ""},
		h.kernel(),
	}
	checks = append(checks, h.kvm(vendor)...)
	checks = append(checks, h.limits(), h.owner(), h.python(ctx))
	checks = append(checks, h.cache()...)
	return append(checks, h.worker(ctx, checks)...)
}

func (h Host) kernel() Check {
	if !h.PagemapScan() {
		return Check{"kernel", Warn, "Linux " + h.Kernel() + " has no PAGEMAP_SCAN (6.7 and later do): resets are slower", ""}
	}
	return Check{"kernel", OK, "Linux " + h.Kernel() + " with PAGEMAP_SCAN", ""}
}

func (h Host) kvm(vendor string) []Check {
	reached, err := h.KVM()
	why := "unknown reason"
	if err != nil {
		why = err.Error()
	}
	rows := []struct {
		step KVMStep
		ok   Check
		bad  func() Check
	}{
		{KVMPresent, Check{"kvm-device", OK, "/dev/kvm is there", ""}, func() Check {
			return Check{"kvm-device", Fail, why + "; inside a virtual machine, its host must allow nested virtualisation", "sudo modprobe " + kvmModule(vendor)}
		}},
		{KVMOpen, Check{"kvm-access", OK, "it can be opened", ""}, func() Check {
			if !errors.Is(err, fs.ErrPermission) {
				return Check{"kvm-access", Fail, why, ""}
			}
			return Check{"kvm-access", Fail, why + "; log in again after mending it", fmt.Sprintf("sudo usermod -aG %s %s", h.Group(), h.User())}
		}},
		{KVMVersion, Check{"kvm-api", OK, "its interface is version 12", ""}, func() Check {
			return Check{"kvm-api", Fail, why, ""}
		}},
		{KVMReady, Check{"kvm-vm", OK, "a virtual machine can be made", ""}, func() Check {
			return Check{"kvm-vm", Fail, why + "; another hypervisor may be using the processor", ""}
		}},
	}
	var checks []Check
	for _, r := range rows {
		if reached < r.step {
			return append(checks, r.bad())
		}
		checks = append(checks, r.ok)
	}
	return append(checks, h.features())
}

func (h Host) features() Check {
	seen, missing, err := h.Features()
	switch {
	case err != nil:
		return Check{"kvm-guest", Fail, "a guest does not run: " + err.Error(), ""}
	case len(missing) > 0:
		return Check{"kvm-guest", Warn, "a guest runs but does not see " + strings.Join(missing, ", ") + ": numpy and its like may use much slower code", ""}
	}
	return Check{"kvm-guest", OK, fmt.Sprintf("a guest runs and sees all %d features that libraries ask this processor for", seen), ""}
}

// limits says which enforcement sandboxes get. Anything below control groups is
// a warning, with what an operator does to have them.
func (h Host) limits() Check {
	offers := h.Limits()
	best := ceiling.Strongest(offers)
	for _, o := range offers {
		if o.Enforcement == microvm.EnforceCgroup && o.Err != nil && best == microvm.EnforceRlimit {
			return Check{"limits", Warn, fmt.Sprintf("rlimit only, which counts address space and not what the kernel holds: %v", o.Err), strings.Join(o.Mend, "\n")}
		}
	}
	return Check{"limits", OK, fmt.Sprintf("a sandbox's process is bounded by %s", best), ""}
}

// owner says whether this user can own sandboxes.
func (h Host) owner() Check {
	dir, err := h.LockDir()
	if err != nil {
		return Check{"owner", Warn, "no folder for locks, so that no namespace can be owned (run and repl need none): " + err.Error(), ""}
	}
	return Check{"owner", OK, "locks are in " + dir, ""}
}

// worker has a sandbox answer where everything that it needs is there already:
// capturing a Python takes a second, and is the first run's business.
func (h Host) worker(ctx context.Context, before []Check) []Check {
	dir, err := h.Cache()
	if err != nil {
		return nil
	}
	if n, err := h.Images(dir); err != nil || n == 0 {
		return nil
	}
	for _, c := range before {
		if c.Status == Fail {
			return nil
		}
	}
	info, err := h.Worker(ctx)
	if err != nil {
		return []Check{{"worker", Fail, cli.Explain(err), ""}}
	}
	return []Check{{"worker", OK, fmt.Sprintf("a sandbox answers (engine %s, Python %s, limits %s)", info.Engine, info.Python, info.Limits), ""}}
}

func kvmModule(vendor string) string {
	if vendor == "AuthenticAMD" || vendor == "HygonGenuine" {
		return "kvm_amd"
	}
	return "kvm_intel"
}

func (h Host) python(ctx context.Context) Check {
	found, err := h.Python(ctx)
	if err != nil {
		return Check{"python", Fail, err.Error(), "sudo apt-get install -y python3"}
	}
	return Check{"python", OK, found, ""}
}

// cache looks at the cache folder and what is in it.
func (h Host) cache() []Check {
	dir, err := h.Cache()
	if err != nil {
		return []Check{{"cache", Fail, err.Error(), fmt.Sprintf("export %s=$HOME/.cache/%s", cli.CacheEnv, cli.Program)}}
	}
	c := folder(dir)
	for _, sub := range []string{"images", "templates"} {
		if c.Status == OK {
			c = inner(filepath.Join(dir, sub), c)
		}
	}
	if c.Status != OK {
		return []Check{c}
	}
	images, err := h.Images(dir)
	if err != nil {
		return []Check{c, {"image", Warn, err.Error(), ""}}
	}
	templates, err := h.Templates(dir)
	if err != nil {
		return []Check{c, {"template", Warn, err.Error(), ""}}
	}
	return []Check{c, count("image", images), count("template", templates)}
}

func count(id string, n int) Check {
	if n == 0 {
		return Check{id, OK, "none yet: the first run makes one", ""}
	}
	return Check{id, OK, fmt.Sprintf("%d in the cache", n), ""}
}

// folder says whether the cache folder can be used: nobody else can write to
// it, or it does not exist and can be made.
func folder(dir string) Check {
	quoted := shellQuote(dir)
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := creatable(dir); err != nil {
			return Check{"cache", Fail, fmt.Sprintf("%s cannot be made: %v", dir, err), "mkdir -p -m 700 " + quoted}
		}
		return Check{"cache", OK, dir + " does not exist yet: the first run makes it", ""}
	case err != nil:
		return Check{"cache", Fail, err.Error(), "mkdir -p -m 700 " + quoted}
	case !info.IsDir():
		return Check{"cache", Fail, dir + " is not a folder", fmt.Sprintf("mv %s %s.old", quoted, quoted)}
	case !owned(info):
		return Check{"cache", Fail, dir + " belongs to another user", "sudo chown -R \"$(id -u)\" " + quoted}
	case info.Mode().Perm()&0o022 != 0, info.Mode().Perm()&0o700 != 0o700:
		return Check{"cache", Fail, fmt.Sprintf("%s has mode %o", dir, info.Mode().Perm()), "chmod 700 " + quoted}
	}
	return Check{"cache", OK, dir, ""}
}

// inner gives good unless the folder dir of the cache is not private. What
// others may have put there is not to be trusted: it is removed, not closed.
func inner(dir string, good Check) Check {
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return good
	case err != nil:
		return Check{"cache", Fail, err.Error(), ""}
	case !info.IsDir(), !owned(info), info.Mode().Perm()&0o077 != 0:
		return Check{"cache", Fail, fmt.Sprintf("%s is not private (%v)", dir, info.Mode()), "rm -r " + shellQuote(dir)}
	}
	return good
}

// creatable says whether a folder can be made at dir: the nearest parent that
// exists is a folder that can be written.
func creatable(dir string) error {
	for {
		parent := filepath.Dir(dir)
		if parent == dir {
			return fs.ErrNotExist
		}
		dir = parent
		if _, err := os.Stat(dir); err == nil {
			return writable(dir)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
