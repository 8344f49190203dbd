package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kernels are the series that are tested and the Debian releases that have
// them. Both are run because they differ: 6.12 refuses KVM_SET_SREGS of a
// 64-bit state before KVM_SET_CPUID2, 6.1 does not.
var kernels = []struct{ series, suite string }{
	{"6.12", "trixie"},
	{"6.1", "bookworm"},
}

const defaultKernel = "6.12"

// metaPackage depends on the newest kernel for virtual machines, which has few
// drivers and starts fast.
const metaPackage = "linux-image-cloud-amd64"

// modules are the kernel modules that make /dev/kvm on AMD, in the order of
// loading.
var modules = []string{"irqbypass", "kvm", "kvm-amd"}

func suiteOf(series string) string {
	for _, k := range kernels {
		if k.series == series {
			return k.suite
		}
	}
	return ""
}

func known() string {
	var names []string
	for _, k := range kernels {
		names = append(names, k.series)
	}
	return strings.Join(names, ", ")
}

// kernel is an unpacked kernel in the cache.
type kernel struct {
	series, version string
	image           string
	modules         []string
}

// kernelFor gives a kernel from the user's cache and fetches it before if it is
// not there.
func kernelFor(ctx context.Context, series string) (kernel, error) {
	cache, err := cacheDir()
	if err != nil {
		return kernel{}, err
	}
	dir := filepath.Join(cache, "kernel-"+series)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		fmt.Printf("fetching Debian's kernel %s, once per machine\n", series)
		err := fetch(ctx, series, dir)
		if err != nil {
			return kernel{}, unable("cannot fetch the kernel: %v", err)
		}
	} else if err != nil {
		return kernel{}, err
	}
	version, err := os.ReadFile(filepath.Join(dir, "version"))
	if err != nil {
		return kernel{}, err
	}
	k := kernel{series: series, version: strings.TrimSpace(string(version)), image: filepath.Join(dir, "vmlinuz")}
	for _, m := range modules {
		k.modules = append(k.modules, filepath.Join(dir, m+".ko"))
	}
	return k, nil
}

// fetch downloads and unpacks a kernel into dir.
func fetch(ctx context.Context, series, dir string) error {
	r, err := openRelease(ctx, suiteOf(series), filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer r.close()
	depends, err := r.cache(ctx, "depends", "--important", metaPackage)
	if err != nil {
		return err
	}
	image := imagePackage(depends, series)
	if image == "" {
		return fmt.Errorf("%s has no kernel %s any more", suiteOf(series), series)
	}
	debs, err := r.download(ctx, image)
	if err != nil {
		return err
	}
	root := filepath.Join(r.work, "root")
	if _, err := quietly(exec.CommandContext(ctx, "dpkg-deb", "-x", debs[0], root)); err != nil {
		return err
	}
	ready := filepath.Join(r.work, "ready")
	if err := pick(ctx, root, ready, strings.TrimPrefix(image, "linux-image-")); err != nil {
		return err
	}
	if err := os.Rename(ready, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err // another run may have been faster
	}
	return nil
}

// imagePackage finds the kernel's package in what apt-cache says about the
// meta package.
func imagePackage(depends, series string) string {
	for word := range strings.FieldsSeq(depends) {
		if strings.HasPrefix(word, "linux-image-"+series+".") {
			return word
		}
	}
	return ""
}

// pick takes the few files out of an unpacked package that the VM needs.
func pick(ctx context.Context, root, to, version string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(root, "boot", "vmlinuz-"+version), filepath.Join(to, "vmlinuz")); err != nil {
		return err
	}
	found := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if name, _, ok := strings.Cut(d.Name(), ".ko"); err == nil && ok {
			found[name] = p
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, m := range modules {
		from, ok := found[m]
		if !ok {
			return fmt.Errorf("kernel %s has no module %s", version, m)
		}
		cmd := exec.CommandContext(ctx, "cat", from)
		switch filepath.Ext(from) {
		case ".xz":
			cmd = exec.CommandContext(ctx, "xz", "-dc", from)
		case ".zst":
			cmd = exec.CommandContext(ctx, "zstd", "-dcq", from)
		}
		content, err := quietly(cmd)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, m+".ko"), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(to, "version"), []byte(version+"\n"), 0o600)
}
