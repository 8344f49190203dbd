package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
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

// keyring checks what comes from any mirror.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

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
	cache, err := os.UserCacheDir()
	if err != nil {
		return kernel{}, err
	}
	dir := filepath.Join(cache, "maf-sandbox-check", "vm", "kernel-"+series)
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

// fetch downloads and unpacks a kernel into dir. apt checks its signature; its
// sources, lists and cache are our own, so the machine's stay as they are.
func fetch(ctx context.Context, series, dir string) error {
	for _, p := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%s is missing (Debian and its relatives have it)", p)
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		return fmt.Errorf("needs the package debian-archive-keyring: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), ".fetch-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	for _, d := range []string{"state/lists/partial", "cache/archives/partial", "root"} {
		if err := os.MkdirAll(filepath.Join(work, d), 0o700); err != nil {
			return err
		}
	}
	own := []string{
		"-qq",
		"-o", "Dir::State=" + work + "/state",
		"-o", "Dir::State::status=/dev/null",
		"-o", "Dir::Cache=" + work + "/cache",
		"-o", "Dir::Etc::SourceList=" + work + "/sources.list",
		"-o", "Dir::Etc::SourceParts=/dev/null",
		"-o", "APT::Architecture=amd64",
		"-o", "APT::Architectures::=amd64",
		"-o", "Acquire::Languages=none",
		"-o", "Acquire::Retries=3",
		"-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
		"-o", "APT::Update::Error-Mode=any",
		// The folders are this user's, so nobody else may download into them.
		"-o", "APT::Sandbox::User=",
	}
	mirror, err := mirrorOf(ctx)
	if err != nil {
		return err
	}
	sources := fmt.Sprintf("deb [signed-by=%s] %s %s main\n", keyring, mirror, suiteOf(series))
	if err := os.WriteFile(filepath.Join(work, "sources.list"), []byte(sources), 0o600); err != nil {
		return err
	}
	if _, err := quietly(apt(ctx, append(own, "update")...)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "apt-cache", append(own, "depends", "--important", metaPackage)...)
	depends, err := quietly(cmd)
	if err != nil {
		return err
	}
	image := imagePackage(depends, series)
	if image == "" {
		return fmt.Errorf("%s has no kernel %s any more", suiteOf(series), series)
	}
	cmd = apt(ctx, append(own, "download", image)...)
	cmd.Dir = work
	if _, err := quietly(cmd); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("downloaded %d packages", len(debs))
	}
	root := filepath.Join(work, "root")
	if _, err := quietly(exec.CommandContext(ctx, "dpkg-deb", "-x", debs[0], root)); err != nil {
		return err
	}
	ready := filepath.Join(work, "ready")
	if err := pick(ctx, root, ready, strings.TrimPrefix(image, "linux-image-")); err != nil {
		return err
	}
	if err := os.Rename(ready, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err // another run may have been faster
	}
	return nil
}

// mirrorOf gives the Debian mirror that the machine's own sources name. There
// is no other: where packages come from is the machine's choice.
func mirrorOf(ctx context.Context) (string, error) {
	out, err := quietly(apt(ctx, "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"))
	if err != nil {
		return "", err
	}
	for uri := range strings.FieldsSeq(out) {
		if uri = strings.TrimRight(uri, "/"); path.Base(uri) == "debian" {
			return uri, nil
		}
	}
	return "", errors.New("apt's sources name no mirror of Debian")
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
