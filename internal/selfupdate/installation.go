package selfupdate

import (
	"context"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// Manager is how the program came to be where it is.
type Manager string

// The managers. The first four are those of the operator protocol; only uv
// tool, pipx and go install can update the program.
const (
	UVTool             Manager = "uv-tool"
	Pipx               Manager = "pipx"
	VirtualEnvironment Manager = "virtual-environment"
	SystemPython       Manager = "system-python"
	GoInstall          Manager = "go-install"
	// GoTool is a binary in the go command's cache: "go tool" or "go run".
	GoTool Manager = "go-tool"
	// Distribution is a file where only the system's package manager writes.
	Distribution Manager = "distribution"
	// File is any other file.
	File Manager = "file"
)

// Installation describes where the program is and who may replace it.
type Installation struct {
	Manager       Manager `json:"manager"`
	SelfUpdatable bool    `json:"self_updatable"`
	// Prefix is the environment, or else the folder of the program.
	Prefix string `json:"prefix"`
	// Reason says why SelfUpdatable is false.
	Reason string `json:"-"`
}

// Detect says how the program was installed. Only if it lies in an environment
// of uv or pipx, that tool is asked whether it is its owner; everything else is
// read from files, which takes less than a millisecond.
//
// Errors are those of a step, or that of a program that cannot be found.
func Detect(ctx context.Context, o Options) (Installation, error) {
	u, err := newUpdate(o)
	if err != nil {
		return Installation{}, err
	}
	defer u.cleanUp()
	if err := u.probe(ctx); err != nil {
		return Installation{}, err
	}
	return u.inst, nil
}

func (u *update) probe(ctx context.Context) error {
	blocked, err := u.owner.probe(ctx, u)
	if err != nil {
		return err
	}
	u.inst.SelfUpdatable, u.inst.Reason = blocked == "", blocked
	return nil
}

// site is what locate found around the program.
type site struct {
	dir string // the executable's folder
	// Of an environment or a Python: its prefix and interpreter.
	prefix, python string
}

// locate finds the manager from files, and its owner and scheme with it.
func (u *update) locate() error {
	exe, err := filepath.EvalSymlinks(u.Executable)
	if err != nil {
		return err
	}
	if exe, err = filepath.Abs(exe); err != nil {
		return err
	}
	u.executable = exe
	u.site.dir = filepath.Dir(exe)
	u.inst.Manager, u.inst.Prefix = u.manager()
	u.scheme = golang{}
	switch u.inst.Manager {
	case UVTool:
		u.owner, u.scheme = &uvTool{}, python{}
	case Pipx:
		u.owner, u.scheme = &pipx{}, python{}
	case VirtualEnvironment, SystemPython:
		u.owner, u.scheme = &foreignPython{}, python{}
	case GoInstall:
		u.owner = &goInstall{}
	case GoTool, Distribution, File:
		u.owner = &foreign{}
	}
	return nil
}

func (u *update) manager() (m Manager, prefix string) {
	s := &u.site
	if name := filepath.Base(s.dir); name == "bin" || strings.EqualFold(name, "Scripts") {
		s.prefix = filepath.Dir(s.dir)
		if isFile(filepath.Join(s.prefix, "pyvenv.cfg")) {
			s.python = interpreter(s.dir, u.OS)
			switch {
			case isFile(filepath.Join(s.prefix, uvReceipt)):
				return UVTool, s.prefix
			case isFile(filepath.Join(s.prefix, pipxMetadata)):
				return Pipx, s.prefix
			}
			return VirtualEnvironment, s.prefix
		}
		if python := u.pythonWithWheel(); python != "" && !systemFolder(s.dir) {
			s.python = python
			return SystemPython, s.prefix
		}
	}
	switch {
	case u.inGoCache():
		return GoTool, s.dir
	case releaseOf(u.Build, u.Program.Module) && samePath(s.dir, u.goBin()):
		return GoInstall, s.dir
	case u.OS != "windows" && systemFolder(s.dir):
		return Distribution, s.dir
	}
	return File, s.dir
}

// interpreter gives the interpreter of an environment.
func interpreter(bin, goos string) string {
	if goos == "windows" {
		return filepath.Join(bin, "python.exe")
	}
	return filepath.Join(bin, "python")
}

// pythonWithWheel gives the interpreter outside environments into which the
// wheel was installed, if the program lies beside one.
func (u *update) pythonWithWheel() string {
	name := strings.ReplaceAll(u.Program.Distribution, "-", "_")
	for _, lib := range []string{"lib/python3*/site-packages", "lib/python3*/dist-packages", "Lib/site-packages"} {
		found, err := filepath.Glob(filepath.Join(escapeGlob(u.site.prefix), lib, name+"-*.dist-info", "METADATA"))
		if err != nil || len(found) == 0 {
			continue
		}
		if python := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(found[len(found)-1])))); python != "Lib" {
			return python // such as python3.12
		}
		return "python"
	}
	return ""
}

// escapeGlob spells a path so that Glob takes it literally.
func escapeGlob(path string) string {
	if filepath.Separator == '\\' {
		return path // no escapes exist there
	}
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// releaseOf says whether a binary was built from a released version of the
// module in the go command's module cache: only then the linker notes the hash
// of the module. A build in a checkout has none, whatever its version.
func releaseOf(b *debug.BuildInfo, module string) bool {
	return b != nil && b.Main.Path == module && b.Main.Sum != "" && b.Main.Replace == nil
}

// inGoCache says whether the go command keeps the binary for itself: go tool
// and go run start programs from its cache or from a temporary folder.
func (u *update) inGoCache() bool {
	if !strings.HasPrefix(buildPath(u.Build), u.Program.Module) {
		return false
	}
	cache := u.goVariable("GOCACHE")
	if cache == "" {
		if dir, err := os.UserCacheDir(); err == nil {
			cache = filepath.Join(dir, "go-build")
		}
	}
	if cache != "" && below(u.executable, cache) {
		return true
	}
	tmp := u.goVariable("GOTMPDIR")
	if tmp == "" {
		tmp = os.TempDir()
	}
	found, err := filepath.Rel(resolve(tmp), u.executable)
	return err == nil && strings.HasPrefix(found, "go-build")
}

func buildPath(b *debug.BuildInfo) string {
	if b == nil {
		return ""
	}
	return b.Path
}

// systemFolder says whether a folder belongs to a package manager of the
// system: the file system hierarchy's, Nix's, Snap's and Homebrew's.
func systemFolder(dir string) bool {
	if strings.Contains(dir, "/Cellar/") {
		return true
	}
	if below(dir, "/usr/local") {
		return false
	}
	for _, system := range []string{"/usr", "/bin", "/sbin", "/nix/store", "/gnu/store", "/snap"} {
		if below(dir, system) {
			return true
		}
	}
	return false
}

// below says whether path is dir or lies in it.
func below(path, dir string) bool {
	rel, err := filepath.Rel(resolve(dir), path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

func samePath(a, b string) bool {
	return b != "" && resolve(a) == resolve(b)
}

// resolve follows links where it can.
func resolve(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// base gives the name of a program without the suffix of Windows.
func base(path string) string {
	name := filepath.Base(path)
	if ext := filepath.Ext(name); strings.EqualFold(ext, ".exe") {
		name = name[:len(name)-len(ext)]
	}
	return name
}

// readSmall reads a file that is no longer than limit.
func readSmall(path string, limit int64) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > limit {
		return nil, &os.PathError{Op: "read", Path: path, Err: errSize}
	}
	return os.ReadFile(path)
}
