package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// userlandPackages are the programs of the VM, without what they depend on:
// systemd with the message bus and sessions, and what the operator's recipe
// calls.
var userlandPackages = []string{
	"systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "sudo", "dash", "coreutils",
}

// unneeded are folders that would only make the VM bigger.
var unneeded = []string{
	"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian", "usr/share/bash-completion",
	"usr/share/zsh", "usr/share/bug", "usr/lib/x86_64-linux-gnu/gconv", "usr/lib/x86_64-linux-gnu/perl-base", "usr/lib/locale",
}

// merged are the folders that lie below /usr (Debian's "merged /usr"); older
// packages still name them at the top.
var merged = []string{"bin", "sbin", "lib", "lib64"}

// userlandFor gives an archive with the programs of a kernel's Debian release,
// which is in the user's cache after the first time. No program of a package is
// run: what its scripts would set up is in setup.go.
func userlandFor(ctx context.Context, series string) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	suite := suiteOf(series)
	// What goes in is part of the name, so that a change is not missed.
	key := sha256.Sum256(fmt.Append(nil, userlandPackages, unneeded, merged))
	file := filepath.Join(cache, fmt.Sprintf("userland-%s-%x", series, key[:4]))
	if _, err := os.Stat(file); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	fmt.Printf("fetching Debian's programs for kernel %s, once per machine\n", series)
	r, err := openRelease(ctx, suite, cache)
	if err != nil {
		return "", unable("cannot fetch programs of %s: %v", suite, err)
	}
	defer r.close()
	ready := filepath.Join(r.work, "userland")
	if err := r.userland(ctx, ready); err != nil {
		return "", unable("cannot fetch programs of %s: %v", suite, err)
	}
	return file, os.Rename(ready, file)
}

// userland packs the programs into a new file.
func (r *release) userland(ctx context.Context, file string) error {
	packages, err := r.closure(ctx, userlandPackages...)
	if err != nil {
		return err
	}
	debs, err := r.download(ctx, packages...)
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	a := newArchive(f)
	for _, dir := range merged {
		err = errors.Join(err, a.folder("usr/"+dir), a.link(dir, "usr/"+dir))
	}
	for _, deb := range debs {
		if err != nil {
			break
		}
		err = a.unpack(ctx, deb)
	}
	return errors.Join(err, a.close(), f.Close())
}

// unpack adds the files of a package.
func (a *archive) unpack(ctx context.Context, deb string) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	var words strings.Builder
	cmd.Stderr = &words
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = a.tar(tar.NewReader(out))
	// What the reader leaves, so that the program can end.
	_, drain := io.Copy(io.Discard, out)
	if err := errors.Join(err, drain, cmd.Wait()); err != nil {
		return fmt.Errorf("unpack %s: %w: %s", filepath.Base(deb), err, lastLines(words.String(), 3))
	}
	return nil
}

// tar adds the entries of a tar archive.
func (a *archive) tar(r *tar.Reader) error {
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := place(h.Name)
		if name == "" {
			continue
		}
		if err := a.folder(path.Dir(name)); err != nil {
			return err
		}
		mode := uint32(h.Mode) & 0o7777
		switch h.Typeflag {
		case tar.TypeDir:
			err = a.folderWith(name, mode)
		case tar.TypeReg:
			err = a.entry(name, 0o100000|mode, uint32(h.Gid), h.Size, r)
		case tar.TypeSymlink:
			err = a.link(name, h.Linkname)
		case tar.TypeLink:
			err = a.link(name, "/"+place(h.Linkname))
		default:
			err = fmt.Errorf("%s is of type %q", h.Name, h.Typeflag)
		}
		if err != nil {
			return err
		}
	}
}

// place says where a package's file goes; empty: nowhere.
func place(name string) string {
	name = path.Clean("/" + name)[1:]
	for _, dir := range merged {
		if name == dir {
			return "" // is a link already
		}
		if strings.HasPrefix(name, dir+"/") {
			name = "usr/" + name
			break
		}
	}
	for _, dir := range unneeded {
		if name == dir || strings.HasPrefix(name, dir+"/") {
			return ""
		}
	}
	return name
}
