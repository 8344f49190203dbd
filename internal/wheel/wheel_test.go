package wheel

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func spec(t *testing.T, target string) Spec {
	t.Helper()
	tg, err := ParseTarget(target)
	if err != nil {
		t.Fatal(err)
	}
	return Spec{
		Name: "Maf_Sandbox.MST", Version: "v1.2.0-rc.1", Target: tg, Command: "mst", Executable: []byte("\x7fELF binary"),
		Summary: "a console", Readme: "# MST\n\nText.\n", License: "MIT", Notices: map[string][]byte{"z-LICENSE": []byte("z"), "a-LICENSE": []byte("a")},
	}
}

func build(t *testing.T, s Spec) ([]byte, *zip.Reader) {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, s); err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), r
}

func read(t *testing.T, f *zip.File) string {
	t.Helper()
	r, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAWheelHasItsFilesAndTheirModes(t *testing.T) {
	_, z := build(t, spec(t, "linux/arm64"))
	var got []string
	for _, f := range z.File {
		got = append(got, fmt.Sprintf("%v %s", f.Mode(), f.Name))
	}
	const info = "maf_sandbox_mst-1.2.0rc1.dist-info/"
	want := []string{
		"-rwxr-xr-x maf_sandbox_mst-1.2.0rc1.data/scripts/mst",
		"-rw-r--r-- " + info + "METADATA",
		"-rw-r--r-- " + info + "WHEEL",
		"-rw-r--r-- " + info + "licenses/a-LICENSE",
		"-rw-r--r-- " + info + "licenses/z-LICENSE",
		"-rw-r--r-- " + info + "RECORD",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	const metadata = "Metadata-Version: 2.4\nName: Maf_Sandbox.MST\nVersion: 1.2.0rc1\nSummary: a console\nLicense-Expression: MIT\n" +
		"License-File: a-LICENSE\nLicense-File: z-LICENSE\nDescription-Content-Type: text/markdown; charset=UTF-8\n\n# MST\n\nText.\n"
	if text := read(t, z.File[1]); text != metadata {
		t.Errorf("%q", text)
	}
	const wheel = "Wheel-Version: 1.0\nGenerator: maf-sandbox-go wheel\nRoot-Is-Purelib: false\n" +
		"Tag: py3-none-manylinux2014_aarch64\nTag: py3-none-manylinux_2_17_aarch64\nTag: py3-none-musllinux_1_1_aarch64\n"
	if text := read(t, z.File[2]); text != wheel {
		t.Errorf("%q", text)
	}
}

func TestRecordHoldsEveryFileWithItsHashAndSize(t *testing.T) {
	_, z := build(t, spec(t, "linux/amd64"))
	rows, err := csv.NewReader(strings.NewReader(read(t, z.File[len(z.File)-1]))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(z.File) {
		t.Fatalf("%d rows for %d files", len(rows), len(z.File))
	}
	for i, f := range z.File {
		text := read(t, f)
		sum := sha256.Sum256([]byte(text))
		want := []string{f.Name, "sha256=" + base64.RawURLEncoding.EncodeToString(sum[:]), fmt.Sprint(len(text))}
		if i == len(z.File)-1 {
			want = []string{f.Name, "", ""}
		}
		if !slices.Equal(rows[i], want) {
			t.Errorf("%q, want %q", rows[i], want)
		}
	}
}

func TestEqualInputsGiveEqualBytes(t *testing.T) {
	local := time.FixedZone("elsewhere", 5*3600)
	when := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	first := spec(t, "linux/amd64")
	first.Time = when
	a, _ := build(t, first)
	// Maps have no order; a time zone is not the moment.
	for range 10 {
		s := spec(t, "linux/amd64")
		s.Time = when.In(local)
		if b, _ := build(t, s); !bytes.Equal(a, b) {
			t.Fatal("other bytes")
		}
	}
	_, z := build(t, spec(t, "linux/amd64"))
	if got := z.File[0].Modified.UTC().Format(time.DateOnly); got != "1980-01-01" {
		t.Error(got)
	}
}

func TestFileNamesSayWhereAWheelFits(t *testing.T) {
	for target, want := range map[string]string{
		"linux/amd64":   "manylinux2014_x86_64.manylinux_2_17_x86_64.musllinux_1_1_x86_64",
		"linux/arm64":   "manylinux2014_aarch64.manylinux_2_17_aarch64.musllinux_1_1_aarch64",
		"darwin/amd64":  "macosx_12_0_x86_64",
		"darwin/arm64":  "macosx_12_0_arm64",
		"windows/amd64": "win_amd64",
		"windows/arm64": "win_arm64",
	} {
		s := spec(t, target)
		if got := s.Filename(); got != "maf_sandbox_mst-1.2.0rc1-py3-none-"+want+".whl" {
			t.Error(got)
		}
		_, z := build(t, s)
		if got := strings.HasSuffix(z.File[0].Name, "/mst.exe"); got != strings.HasPrefix(target, "windows") {
			t.Errorf("%s: %s", target, z.File[0].Name)
		}
	}
	if len(Targets()) != 6 {
		t.Errorf("%v", Targets())
	}
	if _, err := ParseTarget("plan9/386"); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "linux/arm64") {
		t.Error(err)
	}
}

func TestWhatNoWheelCanHoldIsRefused(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"name":           func(s *Spec) { s.Name = "../x" },
		"no name":        func(s *Spec) { s.Name = "" },
		"command":        func(s *Spec) { s.Command = "a/b" },
		"version":        func(s *Spec) { s.Version = "main" },
		"local version":  func(s *Spec) { s.Version = "1.0+here" },
		"no target":      func(s *Spec) { s.Target = Target{} },
		"no executable":  func(s *Spec) { s.Executable = nil },
		"too large":      func(s *Spec) { s.Executable = make([]byte, MaxFile+1) },
		"summary":        func(s *Spec) { s.Summary = "a\nName: other" },
		"license":        func(s *Spec) { s.License = "a\r\n\r\nb" },
		"notice outside": func(s *Spec) { s.Notices = map[string][]byte{"../x": nil} },
		"notice in csv":  func(s *Spec) { s.Notices = map[string][]byte{`a",b`: nil} },
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(t, "linux/amd64")
			change(&s)
			var b bytes.Buffer
			if err := Write(&b, s); !errors.Is(err, ErrInvalid) || b.Len() > 0 {
				t.Errorf("%v after %d bytes", err, b.Len())
			}
		})
	}
	all := Spec{}.Validate()
	for _, want := range []string{"name", "command", "version", "target", "executable"} {
		if !strings.Contains(all.Error(), want) {
			t.Errorf("%v does not speak of the %s", all, want)
		}
	}
}
