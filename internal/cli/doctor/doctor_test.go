package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/ceiling"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/clitest"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

// healthy is a host on which everything is right, with its cache at dir.
func healthy(dir string) Host {
	return Host{
		Platform:    "linux/amd64",
		CPU:         func() (string, string) { return "GenuineIntel", "Some CPU" },
		Kernel:      func() string { return "6.12.0" },
		PagemapScan: func() bool { return true },
		KVM:         func() (KVMStep, error) { return KVMReady, nil },
		Features:    func() (int, []string, error) { return 20, nil, nil },
		User:        func() string { return "ada" },
		Group:       func() string { return "kvm" },
		Python:      func(context.Context) (string, error) { return "/usr/bin/python3 is Python 3.12.1", nil },
		Cache:       func() (string, error) { return dir, nil },
		Limits:      func() []ceiling.Offer { return []ceiling.Offer{{Enforcement: microvm.EnforceCgroup}} },
		LockDir:     func() (string, error) { return "/run/lock", nil },
		Worker: func(context.Context) (microvm.Info, error) {
			return microvm.Info{Engine: "kvm", Python: "3.12.1", Limits: microvm.EnforceCgroup}, nil
		},
		Images:    func(string) (int, error) { return 1, nil },
		Templates: func(string) (int, error) { return 0, nil },
	}
}

func find(checks []Check, id string) Check {
	for _, c := range checks {
		if c.ID == id {
			return c
		}
	}
	return Check{}
}

func TestEachTroubleIsNamedWithItsRemedy(t *testing.T) {
	for _, r := range []struct {
		name   string
		ail    func(*Host)
		id     string
		status Status
		detail string
		fix    string
	}{
		{"another system", func(h *Host) { h.Platform = "darwin/arm64" }, "system", Fail, "darwin/arm64", ""},
		{"an old kernel", func(h *Host) { h.PagemapScan = func() bool { return false } }, "kernel", Warn, "6.7", ""},
		{"no device on Intel", func(h *Host) { h.KVM = step(KVMNothing, fs.ErrNotExist) }, "kvm-device", Fail, "not exist", "sudo modprobe kvm_intel"},
		{"no device on AMD", func(h *Host) {
			h.CPU = func() (string, string) { return "AuthenticAMD", "x" }
			h.KVM = step(KVMNothing, fs.ErrNotExist)
		}, "kvm-device", Fail, "not exist", "sudo modprobe kvm_amd"},
		{"no permission", func(h *Host) { h.KVM = step(KVMPresent, fmt.Errorf("open: %w", fs.ErrPermission)) }, "kvm-access", Fail, "log in again", "sudo usermod -aG kvm ada"},
		{"a device that fails", func(h *Host) { h.KVM = step(KVMPresent, errors.New("odd")) }, "kvm-access", Fail, "odd", ""},
		{"an odd version", func(h *Host) { h.KVM = step(KVMOpen, errors.New("version 13")) }, "kvm-api", Fail, "13", ""},
		{"no machine", func(h *Host) { h.KVM = step(KVMVersion, errors.New("device busy")) }, "kvm-vm", Fail, "busy", ""},
		{"a guest without a feature", func(h *Host) {
			h.Features = func() (int, []string, error) { return 19, []string{"LZCNT"}, nil }
		}, "kvm-guest", Warn, "does not see LZCNT", ""},
		{"a guest that does not run", func(h *Host) {
			h.Features = func() (int, []string, error) { return 0, nil, errors.New("odd exit") }
		}, "kvm-guest", Fail, "odd exit", ""},
		{"no Python", func(h *Host) {
			h.Python = func(context.Context) (string, error) { return "", errors.New("no python3 found") }
		}, "python", Fail, "no python3", "sudo apt-get install -y python3"},
		{"only the weakest ceiling", func(h *Host) {
			h.Limits = func() []ceiling.Offer {
				return []ceiling.Offer{
					{Enforcement: microvm.EnforceCgroup, Err: errors.New("not delegated"), Mend: []string{"sudo a", "sudo b"}},
					{Enforcement: microvm.EnforceSystemd, Err: errors.New("no bus")},
					{Enforcement: microvm.EnforceRlimit},
				}
			}
		}, "limits", Warn, "not delegated", "sudo a\nsudo b"},
		{"systemd bounds", func(h *Host) {
			h.Limits = func() []ceiling.Offer {
				return []ceiling.Offer{{Enforcement: microvm.EnforceCgroup, Err: errors.New("no")}, {Enforcement: microvm.EnforceSystemd}}
			}
		}, "limits", OK, "by systemd", ""},
		{"nowhere for locks", func(h *Host) {
			h.LockDir = func() (string, error) { return "", errors.New("read-only") }
		}, "owner", Warn, "read-only", ""},
		{"a sandbox that does not answer", func(h *Host) {
			h.Worker = func(context.Context) (microvm.Info, error) { return microvm.Info{}, errors.New("no supervisor") }
		}, "worker", Fail, "no supervisor", ""},
		{"no home", func(h *Host) { h.Cache = func() (string, error) { return "", errors.New("no cache folder") } }, "cache", Fail, "no cache", "export MAF_SANDBOX_CACHE=$HOME/.cache/maf-sandbox"},
		{"an unreadable cache", func(h *Host) { h.Images = func(string) (int, error) { return 0, errors.New("bad") } }, "image", Warn, "bad", ""},
	} {
		t.Run(r.name, func(t *testing.T) {
			h := healthy(t.TempDir())
			r.ail(&h)
			c := find(h.Checks(t.Context()), r.id)
			if c.Status != r.status || !strings.Contains(c.Detail, r.detail) || c.Fix != r.fix {
				t.Errorf("got %+v; want %s, %q, %q", c, r.status, r.detail, r.fix)
			}
		})
	}
}

func step(s KVMStep, err error) func() (KVMStep, error) {
	return func() (KVMStep, error) { return s, err }
}

func TestAFailedStepHidesThoseThatNeedIt(t *testing.T) {
	h := healthy(t.TempDir())
	h.KVM = step(KVMPresent, fs.ErrPermission)
	checks := h.Checks(t.Context())
	if find(checks, "worker").ID != "" {
		t.Errorf("a sandbox was tried where there can be none: %+v", checks)
	}
	if find(checks, "kvm-device").Status != OK || find(checks, "kvm-vm").ID != "" {
		t.Errorf("got %+v", checks)
	}
}

func TestTheCacheFolderIsLookedAt(t *testing.T) {
	dir := t.TempDir()
	mode := func(name string, perm fs.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.Mkdir(p, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, perm); err != nil {
			t.Fatal(err)
		}
		return p
	}
	file := filepath.Join(dir, "it's a file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	open := mode("open", 0o775)
	shared := filepath.Join(mode("cache", 0o755), "images")
	if err := os.Mkdir(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	h := healthy(filepath.Dir(shared))
	if c := find(h.Checks(t.Context()), "cache"); c.Status != Fail || c.Fix != "rm -r '"+shared+"'" {
		t.Errorf("images open to others: got %+v", c)
	}
	for _, r := range []struct {
		name, dir string
		status    Status
		fix       string
	}{
		{"readable", mode("readable", 0o755), OK, ""},
		{"private", mode("private", 0o700), OK, ""},
		{"not there yet", filepath.Join(dir, "a", "b"), OK, ""},
		{"writable by others", open, Fail, "chmod 700 '" + open + "'"},
		{"a file", file, Fail, `mv '` + dir + `/it'\''s a file' '` + dir + `/it'\''s a file'.old`},
		{"a link", link, Fail, "mv '" + link + "' '" + link + "'.old"},
		{"below a file", filepath.Join(file, "x"), Fail, `mkdir -p -m 700 '` + dir + `/it'\''s a file/x'`},
	} {
		t.Run(r.name, func(t *testing.T) {
			if c := folder(r.dir); c.Status != r.status || c.Fix != r.fix {
				t.Errorf("got %+v; want %s, %q", c, r.status, r.fix)
			}
		})
	}
}

func examine(t *testing.T, h Host, asJSON, color bool) (int, *bytes.Buffer) {
	t.Helper()
	s, out, _ := streams.Test("")
	s.Color = color
	f, _ := (&clitest.Engine{}).Factory(s, t.TempDir())
	return cli.ExitStatus(run(context.Background(), &Options{Factory: f, Host: h, JSON: asJSON})), out
}

func TestTheStatusSaysWhetherProgramsCanRun(t *testing.T) {
	h := healthy(t.TempDir())
	h.PagemapScan = func() bool { return false }
	if status, out := examine(t, h, false, false); status != 0 || !strings.HasSuffix(out.String(), "programs can be run\n") {
		t.Errorf("a warning: got %d, %s", status, out)
	}
	h.KVM = step(KVMNothing, errors.New("no \x1b[31mdevice"))
	status, out := examine(t, h, false, true)
	if status != 1 || !strings.Contains(out.String(), "mend it: sudo modprobe kvm_intel\n") || !strings.Contains(out.String(), "^[[31mdevice") {
		t.Errorf("a failure: got %d, %s", status, out)
	}
}

func TestTheJSONReportHasEveryCheck(t *testing.T) {
	h := healthy(t.TempDir())
	h.KVM = step(KVMNothing, errors.New("gone"))
	status, out := examine(t, h, true, false)
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if status != 1 || r.OK || find(r.Checks, "kvm-device").Fix == "" || find(r.Checks, "python").Status != OK {
		t.Errorf("got %d, %+v", status, r)
	}
}

func TestAFixOfSeveralCommandsIsShownALineEach(t *testing.T) {
	h := healthy(t.TempDir())
	h.Limits = func() []ceiling.Offer {
		return []ceiling.Offer{{Enforcement: microvm.EnforceCgroup, Err: errors.New("no"), Mend: []string{"sudo a", "sudo b"}}}
	}
	if _, out := examine(t, h, false, false); !strings.Contains(out.String(), "mend it:\n                    sudo a\n                    sudo b\n") {
		t.Errorf("got %s", out)
	}
	if _, out := examine(t, h, true, false); !strings.Contains(out.String(), `"fix":"sudo a\nsudo b"`) {
		t.Errorf("got %s", out)
	}
}

func TestNoSandboxIsTriedBeforeThereIsAnImage(t *testing.T) {
	h := healthy(t.TempDir())
	h.Images = func(string) (int, error) { return 0, nil }
	if c := find(h.Checks(t.Context()), "worker"); c.ID != "" {
		t.Errorf("got %+v", c)
	}
}

func TestThisHostAnswersEveryProbe(t *testing.T) {
	h := ThisHost(func() (string, error) { return t.TempDir(), nil }, (&clitest.Engine{}).Open)
	if checks := h.Checks(t.Context()); len(checks) == 0 {
		t.Error("no checks")
	}
}
