//go:build unix

package image

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// resolvers is how many loaders run at once.
const resolvers = 2

// library is one line of the loader's answer.
type library struct{ name, path string }

// resolver finds the libraries that a Python needs with the host's own loader,
// which alone knows all the rules (RPATH, RUNPATH, $ORIGIN, cache).
type resolver struct {
	plan   *plan
	loader string
	// prefix is the installation prefix whose layout is kept, or "" when it
	// is /usr: there, libraries are the system's.
	prefix string
	// byName maps a library that goes to libFolder to its file on the host.
	byName map[string]string
	// folders are the guest folders that libraries were put in.
	folders map[string]bool
}

// libFolder is where the system's libraries are in the guest.
const libFolder = "/lib"

// run plans everything that the given ELF files on the host need.
func (r *resolver) run(ctx context.Context, files []string) error {
	found := make([][]library, len(files))
	errs := make([]error, len(files))
	var wg sync.WaitGroup
	for k := range resolvers {
		wg.Go(func() {
			for i := k; i < len(files) && ctx.Err() == nil; i += resolvers {
				found[i], errs[i] = r.list(ctx, files[i])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return err
	}
	for i, libs := range found {
		for _, lib := range libs {
			if err := r.place(lib, files[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// list asks the loader what a file needs, without running the file.
func (r *resolver) list(ctx context.Context, file string) ([]library, error) {
	out, err := runHelper(ctx, helperEnv(), r.loader, "--list", file)
	libs, missing := parseList(out)
	if err != nil && len(missing) == 0 {
		return nil, fmt.Errorf("the libraries of %s: %w", file, err)
	}
	for _, name := range missing {
		if !r.plan.brings(name) {
			return nil, &MissingLibraryError{Library: name, NeededBy: file}
		}
	}
	return libs, nil
}

// brings reports whether a captured package has a file of that name: wheels
// may load their own libraries by path before what needs them.
func (p *plan) brings(name string) bool {
	for guest := range p.items {
		if path.Base(guest) == name {
			return true
		}
	}
	return false
}

// parseList reads the output of ld.so --list. The lines are "name => path
// (address)", "name => not found", and for what has no dependencies of its own
// or was put there by the kernel or the administrator (vDSO, the loader,
// ld.so.preload) "name (address)"; the last kind is not needed by the file.
func parseList(out []byte) (libs []library, missing []string) {
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		name, file, ok := strings.Cut(strings.TrimSpace(s.Text()), " => ")
		if !ok {
			continue
		}
		if file == "not found" {
			missing = append(missing, name)
			continue
		}
		if i := strings.LastIndex(file, " (0x"); i >= 0 {
			file = file[:i]
		}
		if path.IsAbs(file) {
			libs = append(libs, library{name, path.Clean(file)})
		}
	}
	return libs, missing
}

// place decides where a library goes in the guest.
func (r *resolver) place(lib library, neededBy string) error {
	if path.Base(lib.name) == path.Base(r.loader) {
		return nil // the loader is in the process before any library
	}
	if strings.ContainsRune(lib.name, '/') {
		return fmt.Errorf("%s needs the library %s by an absolute path, which a guest does not have", neededBy, lib.name)
	}
	dir, err := filepath.EvalSymlinks(path.Dir(lib.path))
	if err != nil {
		return err
	}
	named := path.Join(dir, path.Base(lib.path))
	real, err := filepath.EvalSymlinks(named)
	if err != nil {
		return err
	}
	if guest, ok := r.plan.inside(named); ok {
		return r.plan.addFileOnce(real, guest)
	}
	if r.prefix != "" && within(named, r.prefix) {
		rel, err := filepath.Rel(r.prefix, dir)
		if err != nil {
			return err
		}
		guest := path.Join("/usr", rel, lib.name)
		r.folders[path.Dir(guest)] = true
		return r.plan.addFileOnce(real, guest)
	}
	if old, ok := r.byName[lib.name]; ok && old != real {
		if same, err := sameContent(old, real); err != nil || !same {
			return errors.Join(err, &LibraryConflictError{Library: lib.name, First: old, Second: real})
		}
		return nil
	}
	r.byName[lib.name] = real
	r.folders[libFolder] = true
	return r.plan.addFileOnce(real, path.Join(libFolder, lib.name))
}

// addFileOnce plans a file unless its place is taken by a link or the file.
func (p *plan) addFileOnce(host, guest string) error {
	if p.items[guest] != nil || slices.ContainsFunc(p.links, func(l link) bool { return l.guest == guest }) {
		return nil
	}
	return p.addFile(host, guest)
}

func sameContent(a, b string) (bool, error) {
	x, err := os.ReadFile(a)
	if err != nil {
		return false, err
	}
	y, err := os.ReadFile(b)
	return bytes.Equal(x, y), err
}

// optional plans a library that programs load at run time, if the host has it.
func (r *resolver) optional(ctx context.Context, name, program string) error {
	env := append(helperEnv(), "LD_PRELOAD="+name)
	out, err := runHelper(ctx, env, r.loader, "--list", program)
	if err != nil {
		return ctx.Err()
	}
	libs, _ := parseList(out)
	for _, lib := range libs {
		if lib.name == name {
			return r.place(lib, program)
		}
	}
	r.plan.logf("not on this machine: %s", name)
	return nil
}

// path lists the guest folders to search, the system's first.
func (r *resolver) path() []string {
	folders := make([]string, 0, len(r.folders))
	for dir := range r.folders {
		folders = append(folders, dir)
	}
	slices.Sort(folders) // "/lib" sorts before "/usr"
	return folders
}
