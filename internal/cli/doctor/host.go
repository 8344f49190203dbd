package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/ceiling"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

// ThisHost probes the machine that the program runs on; open opens a sandbox.
func ThisHost(cacheDir func() (string, error), open cli.Opener) Host {
	return Host{
		Platform:    runtime.GOOS + "/" + runtime.GOARCH,
		CPU:         cpu,
		Kernel:      kernel,
		PagemapScan: pagemapScan,
		KVM:         probeKVM,
		Features:    probeFeatures,
		Traced:      probeTraced,
		User:        userName,
		Group:       deviceGroup,
		Python:      python,
		Cache:       cacheDir,
		Limits:      ceiling.Probe,
		LockDir:     lockDir,
		Worker:      func(ctx context.Context) (microvm.Info, error) { return answer(ctx, open) },
		Images:      func(dir string) (int, error) { return countIn(filepath.Join(dir, "images"), ".img") },
		Templates:   func(dir string) (int, error) { return countIn(filepath.Join(dir, "templates"), ".state") },
	}
}

// answer opens a sandbox and has it compute.
func answer(ctx context.Context, open cli.Opener) (info microvm.Info, err error) {
	m, info, err := open(ctx, cli.Options{Engine: host.Auto, Memory: microvm.DefaultMemory, Limits: cli.LimitsAuto})
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	res, err := m.Run(ctx, microvm.Request{Code: "print(6*7)"})
	if err == nil && string(res.Stdout) != "42\n" {
		err = fmt.Errorf("a sandbox computed 6*7 and printed %.80q and %.200q", res.Stdout, res.Stderr)
	}
	return info, err
}

func cpu() (vendor, model string) {
	model = "unknown processor"
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", model
	}
	defer func() { _ = f.Close() }() // only read
	for s := bufio.NewScanner(f); s.Scan() && s.Text() != ""; {
		key, value, _ := strings.Cut(s.Text(), ":")
		switch strings.TrimSpace(key) {
		case "vendor_id":
			vendor = strings.TrimSpace(value)
		case "model name":
			model = strings.TrimSpace(value)
		}
	}
	return vendor, model
}

func kernel() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "of unknown release"
	}
	return strings.TrimSpace(string(b))
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "$USER"
}

// python finds the first python3 on PATH that runs and is new enough. Whether
// it can be captured shows when it is.
func python(ctx context.Context) (string, error) {
	why := errors.New("no python3 found")
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		name := filepath.Join(dir, "python3")
		if !filepath.IsAbs(dir) {
			continue
		}
		if st, err := os.Stat(name); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
			continue
		}
		out, err := exec.CommandContext(ctx, name, "-I", "-c", "import sys; assert sys.version_info >= (3, 9); print(sys.version.split()[0])").Output()
		if err == nil {
			return fmt.Sprintf("%s is Python %.32s", name, strings.TrimSpace(string(out))), nil
		}
		why = fmt.Errorf("%s does not run or is older than 3.9: %w", name, err)
	}
	return "", why
}

// countIn counts the entries of a folder whose names have an ending; the folder
// need not exist. Hidden entries are being made.
func countIn(dir, ending string) (int, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	n := 0
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && strings.HasSuffix(e.Name(), ending) {
			n++
		}
	}
	return n, err
}
