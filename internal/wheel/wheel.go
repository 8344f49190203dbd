// Package wheel makes wheels that carry one executable.
//
// Such a wheel has no Python code: its executable lies in the .data/scripts
// folder, from where every installer puts it onto the PATH of the environment.
// The format is that of the binary distribution format specification, version
// 1.0, and of the core metadata, version 2.4. Equal inputs give equal bytes,
// with one release of Go, whose compression may change with the next.
package wheel

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wheel/pep440"
)

// ErrInvalid is the class of Spec.Validate's errors.
var ErrInvalid = errors.New("invalid wheel")

// MaxFile bounds each file of a wheel, in bytes: indexes refuse larger wheels.
const MaxFile = 100 << 20

// Spec says what a wheel holds.
type Spec struct {
	// Name is the distribution's name.
	Name string
	// Version is a version in any spelling of PEP 440.
	Version string
	// Target is what the executable runs on.
	Target Target
	// Command is the executable's name, without a suffix; Executable its bytes.
	Command    string
	Executable []byte
	// Summary is one line, Readme Markdown, License an SPDX identifier; each may
	// be empty.
	Summary, Readme, License string
	// Notices are licence texts by file name.
	Notices map[string][]byte
	// Time is the modification time of all files; the zero Time is 1980, the
	// first that the format can say.
	Time time.Time
}

// name is the form of the core metadata specification, of a command too: it
// becomes a file's name.
var name = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// Validate reports everything that is wrong with s.
func (s Spec) Validate() error {
	var all []error
	bad := func(format string, args ...any) {
		all = append(all, fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...))
	}
	if !name.MatchString(s.Name) {
		bad("name %q is not one of letters, digits and inner dots, dashes, underscores", s.Name)
	}
	if !name.MatchString(s.Command) {
		bad("command %q is not one of letters, digits and inner dots, dashes, underscores", s.Command)
	}
	if v, err := pep440.Parse(s.Version); err != nil {
		bad("%w", err)
	} else if v.Local() {
		bad("version %s has a local part, which no index accepts", v)
	}
	if len(s.Target.platforms) == 0 {
		bad("no target")
	}
	if len(s.Executable) == 0 || len(s.Executable) > MaxFile {
		bad("an executable of %d bytes; 1 to %d are allowed", len(s.Executable), MaxFile)
	}
	for _, line := range []string{s.Summary, s.License} {
		if strings.ContainsAny(line, "\r\n") {
			bad("%q is more than one line", line)
		}
	}
	for n, text := range s.Notices {
		if !fs.ValidPath(n) || strings.ContainsAny(n, "/\\\n\",") || len(text) > MaxFile {
			bad("notice %q", n)
		}
	}
	return errors.Join(all...)
}

// Filename gives the wheel's file name, by which installers choose it.
func (s Spec) Filename() string {
	return s.stem() + "-" + s.Target.tag() + ".whl"
}

// stem is the start of the file's and the folders' names. Its dashes are
// underscores, because dashes separate.
func (s Spec) stem() string {
	v, err := pep440.Parse(s.Version)
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(pep440.Name(s.Name), "-", "_") + "-" + v.String()
}

// Write writes the wheel.
func Write(w io.Writer, s Spec) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if s.Time.IsZero() {
		s.Time = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	info := s.stem() + ".dist-info/"
	files := []file{
		{s.stem() + ".data/scripts/" + s.Command + s.Target.suffix(), 0o755, s.Executable},
		{info + "METADATA", 0o644, s.metadata()},
		{info + "WHEEL", 0o644, s.wheel()},
	}
	for n, text := range s.Notices {
		files = append(files, file{info + "licenses/" + n, 0o644, text})
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	// Metadata at the end of the archive, RECORD last, so that installers find
	// them in one read (the specification recommends it).
	files = append(files, file{info + "RECORD", 0o644, record(files, info+"RECORD")})

	z := zip.NewWriter(w)
	for _, f := range files {
		if err := f.write(z, s.Time); err != nil {
			return fmt.Errorf("write %s: %w", f.path, err)
		}
	}
	return z.Close()
}

type file struct {
	path string
	mode fs.FileMode
	text []byte
}

func (f file) write(z *zip.Writer, t time.Time) error {
	h := &zip.FileHeader{Name: f.path, Method: zip.Deflate, Modified: t.UTC()}
	h.SetMode(f.mode)
	w, err := z.CreateHeader(h)
	if err != nil {
		return err
	}
	_, err = w.Write(f.text)
	return err
}

// record lists every file with its hash and size; itself without both.
func record(files []file, self string) []byte {
	var b bytes.Buffer
	for _, f := range files {
		sum := sha256.Sum256(f.text)
		fmt.Fprintf(&b, "%s,sha256=%s,%d\n", f.path, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.text))
	}
	fmt.Fprintf(&b, "%s,,\n", self)
	return b.Bytes()
}

func (s Spec) wheel() []byte {
	var b bytes.Buffer
	b.WriteString("Wheel-Version: 1.0\nGenerator: maf-sandbox-go wheel\nRoot-Is-Purelib: false\n")
	for _, p := range s.Target.platforms {
		fmt.Fprintf(&b, "Tag: py3-none-%s\n", p)
	}
	return b.Bytes()
}

func (s Spec) metadata() []byte {
	v, err := pep440.Parse(s.Version)
	if err != nil {
		return nil // Validate has refused it
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "Metadata-Version: 2.4\nName: %s\nVersion: %s\n", s.Name, v)
	if s.Summary != "" {
		fmt.Fprintf(&b, "Summary: %s\n", s.Summary)
	}
	if s.License != "" {
		fmt.Fprintf(&b, "License-Expression: %s\n", s.License)
	}
	for _, n := range slices.Sorted(maps.Keys(s.Notices)) {
		fmt.Fprintf(&b, "License-File: %s\n", n)
	}
	if s.Readme != "" {
		fmt.Fprintf(&b, "Description-Content-Type: text/markdown; charset=UTF-8\n\n%s\n", strings.TrimRight(s.Readme, "\n"))
	}
	return b.Bytes()
}
