//go:build unix

package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Options say what to capture.
type Options struct {
	// Python is an interpreter, as a path or a name on PATH. When it belongs
	// to a virtual environment, the environment's packages are captured too.
	// Empty, without Venv, means the first python3 on PATH that will do.
	Python string
	// Venv is the folder of a virtual environment, or of an installation
	// whose own packages are to be captured.
	Venv string
	// Tests keeps CPython's own test package, which is left out otherwise: its
	// tests judge the sandbox (test/cpython).
	Tests bool
	// Log, when set, receives progress in lines for people.
	Log func(line string)
}

func (o Options) logf(format string, args ...any) {
	if o.Log != nil {
		o.Log(fmt.Sprintf(format, args...))
	}
}

// Captured is what Capture made.
type Captured struct {
	// ID is the image's ID.
	ID string
	// Manifest describes the image.
	Manifest *Manifest
	// Origin lists the files and folders on the host that say, by size and
	// time, whether a new capture would give something else.
	Origin []string
}

// Capture writes an image of a Python to f, from its start. It runs the
// interpreter (to ask it about itself and to compile its library) and the
// host's ELF loader, in a minimal environment. What ends early because of an
// error leaves an incomplete file, which Open refuses.
func Capture(ctx context.Context, f io.WriteSeeker, o Options) (*Captured, error) {
	py, err := findPython(ctx, o)
	if err != nil {
		return nil, err
	}
	o.logf("capturing %s (%s)", py.real, py.Version)
	c, err := newCapture(py, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	id, err := c.write(ctx, f)
	if err != nil {
		return nil, err
	}
	o.logf("captured %d files, %.1f MiB, %d packages", c.manifest.Files, float64(c.manifest.Bytes)/(1<<20), len(c.manifest.Packages))
	origin := append([]string{py.real, filepath.Join(c.stdlib, "os.py")}, c.packages...)
	return &Captured{ID: id, Manifest: c.manifest, Origin: origin}, nil
}

// capture is one capture under way.
type capture struct {
	py       *python
	plan     *plan
	libs     *resolver
	scrub    *scrubber
	manifest *Manifest
	// stdlib and packages are folders on the host, without links.
	stdlib   string
	packages []string
	// skipStdlib says what of the standard library is left out.
	skipStdlib func(rel string, dir bool) bool
	// tests says that CPython's own tests are captured, as they are: a path in
	// them is data, not this host's.
	tests bool
}

// newCapture walks the folders and plans the files in them.
func newCapture(py *python, o Options) (*capture, error) {
	prefix, err := filepath.EvalSymlinks(py.BasePrefix)
	if err != nil {
		return nil, err
	}
	c := &capture{
		py:   py,
		plan: &plan{items: make(map[string]*item), logf: o.logf},
		manifest: &Manifest{
			Python: py.Version, Tag: py.Tag, Libc: py.Libc, Interp: py.elf.interp,
			Executable:   fmt.Sprintf("/usr/bin/python%d.%d", py.Major, py.Minor),
			SitePackages: []string{}, Packages: []Package{},
		},
		scrub:      scrubberFor(py, prefix),
		skipStdlib: skipStdlib,
	}
	if o.Tests {
		c.skipStdlib, c.tests = skipStdlibButTests, true
	}
	c.libs = &resolver{plan: c.plan, loader: py.elf.interp, byName: make(map[string]string), folders: make(map[string]bool)}
	if prefix != "/usr" && prefix != "/" {
		c.libs.prefix = prefix
	}
	if err := c.plan.addFile(py.real, c.manifest.Executable); err != nil {
		return nil, err
	}
	loader, err := filepath.EvalSymlinks(py.elf.interp)
	if err != nil {
		return nil, err
	}
	if err := c.plan.addFile(loader, c.manifest.Interp); err != nil {
		return nil, err
	}
	if err := c.planStdlib(prefix); err != nil {
		return nil, err
	}
	if err := c.planPackages(); err != nil {
		return nil, err
	}
	if err := c.plan.addLocale(); err != nil {
		return nil, err
	}
	if err := c.plan.addZones(); err != nil {
		return nil, err
	}
	return c, c.plan.resolveLinks()
}

// scrubberFor collects the host paths that must not show in the image.
func scrubberFor(py *python, prefix string) *scrubber {
	both := func(paths ...string) []string {
		var all []string
		for _, p := range paths {
			if p == "" {
				continue
			}
			all = append(all, path.Clean(p))
			if real, err := filepath.EvalSymlinks(p); err == nil {
				all = append(all, real)
			}
		}
		return all
	}
	homes := []string{os.Getenv("HOME")}
	if u, err := user.Current(); err == nil {
		homes = append(homes, u.HomeDir)
	}
	return newScrubber(both(py.BasePrefix, prefix), both(py.root), both(py.Sources...), both(homes...))
}

// planStdlib plans the standard library; extension modules may be in a tree of
// their own (lib64).
func (c *capture) planStdlib(prefix string) error {
	name := fmt.Sprintf("python%d.%d", c.py.Major, c.py.Minor)
	for _, host := range []string{c.py.StdLib, c.py.DynLoad} {
		real, err := filepath.EvalSymlinks(host)
		if err != nil {
			if c.stdlib == "" {
				return err
			}
			continue
		}
		if _, ok := c.plan.inside(real); ok {
			continue
		}
		guest := path.Join("/usr/lib", name)
		if rel, err := filepath.Rel(prefix, real); err == nil && within(real, prefix) {
			guest = path.Join("/usr", rel)
		}
		if c.stdlib == "" {
			c.stdlib, c.manifest.StdLib = real, guest
		}
		if err := c.plan.walk(tree{real, guest}, c.skipStdlib); err != nil {
			return err
		}
	}
	return nil
}

// planPackages plans the environment's packages.
func (c *capture) planPackages() error {
	m := c.manifest
	for _, host := range c.py.packages {
		real, err := filepath.EvalSymlinks(host)
		if err != nil || slices.Contains(c.packages, real) {
			continue // lib64 is missing, or a link to lib
		}
		guest := fmt.Sprintf("/usr/lib/python%d.%d/site-packages", c.py.Major, c.py.Minor)
		if len(c.packages) > 0 {
			guest = strings.Replace(guest, "/usr/lib/", "/usr/lib64/", 1)
		}
		c.packages = append(c.packages, real)
		m.SitePackages = append(m.SitePackages, guest)
		// Before the standard library's tree, which may contain this one.
		trees := c.plan.trees
		c.plan.trees = nil
		err = c.plan.walk(tree{real, guest}, skipPackages)
		c.plan.trees = append(c.plan.trees, trees...)
		if err != nil {
			return err
		}
		found, err := packagesIn(real)
		if err != nil {
			return err
		}
		m.Packages = append(m.Packages, found...)
	}
	for _, guest := range c.plan.pathFolders() {
		if !slices.Contains(m.SitePackages, guest) {
			m.SitePackages = append(m.SitePackages, guest)
		}
	}
	slices.SortFunc(m.Packages, func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// write resolves libraries, compiles, and writes the image.
func (c *capture) write(ctx context.Context, f io.WriteSeeker) (id string, err error) {
	w, err := newWriter(f)
	if err != nil {
		return "", err
	}
	// Libraries are looked up and sources compiled while files are copied.
	var needs []string
	planned := c.plan.sorted()
	for _, it := range planned {
		if it.loadable(c.manifest) && it.guest != c.manifest.Interp {
			needs = append(needs, it.host)
		}
	}
	resolved := make(chan error, 1)
	go func() {
		err := c.libs.run(ctx, needs)
		if err == nil {
			// glibc loads it when a thread ends.
			err = c.libs.optional(ctx, "libgcc_s.so.1", c.py.real)
		}
		resolved <- err
	}()
	comp := newCompiler(ctx, c.py.real)
	copyErr := c.copyFiles(ctx, w, planned, comp, false)
	code, compileErr := comp.close()
	if err := errors.Join(<-resolved, copyErr, compileErr); err != nil {
		return "", err
	}
	if err := c.copyFiles(ctx, w, c.plan.sorted(), nil, true); err != nil {
		return "", err
	}
	for _, it := range planned {
		if b := code[it.guest]; b != nil {
			if err := w.file(cachePath(it.guest, c.manifest.Tag), b, false, fileAlign); err != nil {
				return "", err
			}
		}
	}
	c.manifest.LibraryPath = c.libs.path()
	return w.finish(c.manifest)
}

// cachePath is where CPython looks for a source file's byte code (PEP 3147).
func cachePath(guest, tag string) string {
	return path.Join(path.Dir(guest), "__pycache__", strings.TrimSuffix(path.Base(guest), ".py")+"."+tag+".pyc")
}

// copyFiles writes either the ELF files among the items or all others.
func (c *capture) copyFiles(ctx context.Context, w *writer, items []*item, comp *compiler, elf bool) error {
	for _, it := range items {
		if (it.elf != nil) != elf {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if it.target != "" {
			w.link(it.guest, it.target)
			continue
		}
		if err := c.copyFile(w, it, comp); err != nil {
			return err
		}
	}
	return nil
}

func (c *capture) copyFile(w *writer, it *item, comp *compiler) error {
	loadable := it.loadable(c.manifest)
	data, err := it.read(loadable)
	if err != nil {
		return err
	}
	if !c.tests || !within(it.guest, path.Join(c.manifest.StdLib, "test")) {
		data = c.scrub.scrub(data, it.elf != nil)
	}
	if loadable {
		return w.object(it.guest, data, it.elf)
	}
	if comp != nil && strings.HasSuffix(it.guest, ".py") {
		comp.add(it.guest, data)
	}
	return w.file(it.guest, data, it.executable, fileAlign)
}

// loadable reports whether the item is one of the manifest's objects.
func (it *item) loadable(m *Manifest) bool {
	return it.elf != nil && (it.elf.library() || it.guest == m.Executable || it.guest == m.Interp)
}

// read reads what is captured of a file: of those that the ELF loader maps,
// only the part that it maps. Others may carry data of their own at the end.
func (it *item) read(loadable bool) ([]byte, error) {
	if !loadable {
		return os.ReadFile(it.host)
	}
	f, err := os.Open(it.host)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(it.elf.end)))
	return cutELF(data, it.elf), errors.Join(err, f.Close())
}
