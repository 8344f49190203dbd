package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// keyring checks what comes from any mirror.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// cacheDir is where kernels and programs of the VM stay, for this user alone.
func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "maf-sandbox-check", "vm")
	return dir, os.MkdirAll(dir, 0o700)
}

// release is a Debian release as apt sees it with sources, lists and cache of
// our own, so that the machine's stay as they are. apt checks the signatures.
type release struct {
	work string
	own  []string // options of apt
}

// openRelease reads the release's list of packages, into a folder below parent
// that close removes.
func openRelease(ctx context.Context, suite, parent string) (*release, error) {
	for _, p := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(p); err != nil {
			return nil, fmt.Errorf("%s is missing (Debian and its relatives have it)", p)
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		return nil, fmt.Errorf("needs the package debian-archive-keyring: %w", err)
	}
	work, err := os.MkdirTemp(parent, ".fetch-*")
	if err != nil {
		return nil, err
	}
	r := &release{work: work}
	if err := r.read(ctx, suite); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *release) close() { _ = os.RemoveAll(r.work) }

func (r *release) read(ctx context.Context, suite string) error {
	for _, d := range []string{"state/lists/partial", "cache/archives/partial", "root", "debs"} {
		if err := os.MkdirAll(filepath.Join(r.work, d), 0o700); err != nil {
			return err
		}
	}
	r.own = []string{
		"-qq",
		"-o", "Dir::State=" + r.work + "/state",
		// Nothing counts as installed.
		"-o", "Dir::State::status=/dev/null",
		"-o", "Dir::Cache=" + r.work + "/cache",
		"-o", "Dir::Etc::SourceList=" + r.work + "/sources.list",
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
	sources := fmt.Sprintf("deb [signed-by=%s] %s %s main\n", keyring, mirror, suite)
	if err := os.WriteFile(filepath.Join(r.work, "sources.list"), []byte(sources), 0o600); err != nil {
		return err
	}
	_, err = quietly(apt(ctx, append(r.own, "update")...))
	return err
}

// cache gives the answer of apt-cache.
func (r *release) cache(ctx context.Context, args ...string) (string, error) {
	return quietly(exec.CommandContext(ctx, "apt-cache", append(r.own, args...)...))
}

// closure gives the packages and all that they depend on.
func (r *release) closure(ctx context.Context, packages ...string) ([]string, error) {
	// A simulation takes no locks and needs no rights.
	args := append(r.own, "install", "--simulate", "--no-install-recommends")
	said, err := quietly(apt(ctx, append(args, packages...)...))
	if err != nil {
		return nil, err
	}
	return installed(said), nil
}

// installed reads the names out of apt-get's simulation.
func installed(said string) []string {
	var names []string
	for line := range strings.Lines(said) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Inst" {
			names = append(names, f[1])
		}
	}
	return names
}

// download gives the files of packages.
func (r *release) download(ctx context.Context, packages ...string) ([]string, error) {
	cmd := apt(ctx, append(append(r.own, "download"), packages...)...)
	cmd.Dir = filepath.Join(r.work, "debs")
	if _, err := quietly(cmd); err != nil {
		return nil, err
	}
	debs, err := filepath.Glob(filepath.Join(cmd.Dir, "*.deb"))
	if err != nil || len(debs) != len(packages) {
		return nil, fmt.Errorf("downloaded %d of %d packages", len(debs), len(packages))
	}
	return debs, nil
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
