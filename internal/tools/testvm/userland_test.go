package main

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPackagesFilesLieBelowUsr(t *testing.T) {
	for name, want := range map[string]string{
		"./":                         "",
		"./bin":                      "",
		"./lib64":                    "",
		"./bin/sh":                   "usr/bin/sh",
		"./lib64/ld-linux.so.2":      "usr/lib64/ld-linux.so.2",
		"./library/x":                "library/x",
		"./usr/bin/tee":              "usr/bin/tee",
		"./etc/sudoers":              "etc/sudoers",
		"./usr/share/doc/x/y":        "",
		"./usr/share/documents":      "usr/share/documents",
		"../../etc/passwd":           "etc/passwd",
		"/lib/systemd/system/x.unit": "usr/lib/systemd/system/x.unit",
	} {
		if got := place(name); got != want {
			t.Errorf("%s goes to %q, want %q", name, got, want)
		}
	}
}

func TestSimulationNamesTheClosure(t *testing.T) {
	const said = "Inst libc6 (2.41-12 Debian:13.1/stable [amd64]) []\nInst sudo (1.9 Debian [amd64])\nConf libc6 (2.41-12 Debian [amd64])\n"
	if got := installed(said); !slices.Equal(got, []string{"libc6", "sudo"}) {
		t.Errorf("%q", got)
	}
}

func TestPackagesKeepRightsAndLinks(t *testing.T) {
	program, err := exec.LookPath("cpio")
	if err != nil {
		t.Skipf("needs cpio: %v", err)
	}
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, h := range []tar.Header{
		{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./tmp/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: "./bin/su", Typeflag: tar.TypeReg, Mode: 0o4755, Size: 3},
		{Name: "./bin/sh", Typeflag: tar.TypeSymlink, Linkname: "su", Mode: 0o777},
		{Name: "./sbin/again", Typeflag: tar.TypeLink, Linkname: "./bin/su"},
		{Name: "./usr/share/doc/su", Typeflag: tar.TypeReg, Mode: 0o644},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("abc")[:h.Size]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := newArchive(&out)
	if err := a.tar(tar.NewReader(&packed)); err != nil {
		t.Fatal(err)
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	// Another archive may follow.
	if out.Len()%4 != 0 {
		t.Errorf("%d bytes", out.Len())
	}
	cmd := exec.Command(program, "-idm", "--quiet")
	cmd.Dir, cmd.Stdin = t.TempDir(), &out
	if words, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, words)
	}
	for name, want := range map[string]os.FileMode{"tmp": os.ModeDir | os.ModeSticky | 0o777, "usr/bin/su": os.ModeSetuid | 0o755} {
		if info, err := os.Lstat(filepath.Join(cmd.Dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", name, info, err, want)
		}
	}
	for name, want := range map[string]string{"usr/bin/sh": "su", "usr/sbin/again": "/usr/bin/su"} {
		if got, err := os.Readlink(filepath.Join(cmd.Dir, name)); err != nil || got != want {
			t.Errorf("%s leads to %q, %v; want %q", name, got, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(cmd.Dir, "usr/share")); !os.IsNotExist(err) {
		t.Errorf("documentation was packed: %v", err)
	}
}

func TestDevicesInPackagesAreRefused(t *testing.T) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	if err := w.WriteHeader(&tar.Header{Name: "./dev/mem", Typeflag: tar.TypeChar}); err != nil {
		t.Fatal(err)
	}
	if err := newArchive(new(bytes.Buffer)).tar(tar.NewReader(&packed)); err == nil || !strings.Contains(err.Error(), "dev/mem") {
		t.Errorf("error %v", err)
	}
}

func TestSkippedVariantsAreNamedInTheList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "skips")
	for _, line := range []string{"a: b", "c: d"} {
		if err := note(file, line); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "a: b\nc: d\n" {
		t.Errorf("%q, %v", b, err)
	}
}
