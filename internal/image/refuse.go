//go:build unix

package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
)

// minMinor is the oldest minor version of Python 3 with everything that the
// guest's driver uses.
const minMinor = 9

// refuse names what is wrong with an interpreter by what it says of itself.
func (f *facts) refuse(name string) error {
	bad := func(format string, args ...any) error {
		return &UnsupportedError{Python: name, Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case strings.EqualFold(f.Implementation, "pypy"):
		return bad("PyPy")
	case f.Implementation != "cpython":
		return bad("another implementation of Python (%s)", f.Implementation)
	case f.Bits != 64:
		return bad("a 32-bit program")
	case f.Major < 3 || f.Major == 3 && f.Minor < minMinor:
		return bad("Python %s, older than 3.%d", f.Version, minMinor)
	case strings.ContainsRune(f.ABIFlags, 't'):
		return bad("a free-threaded build")
	}
	return nil
}

// refuseFile names what is wrong with a program file before it is run, where
// the file shows it. Scripts, such as shims, are left to answer themselves.
func refuseFile(name string) error {
	p, err := readELF(name)
	if errors.Is(err, errNotELF) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return p.refuse(name)
}

// readProgram reads the interpreter's own file.
func readProgram(name string) (*program, error) {
	p, err := readELF(name)
	if errors.Is(err, errNotELF) {
		return nil, &UnsupportedError{name, "no ELF program but a script around one"}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, p.refuse(name)
}

func readELF(name string) (p *program, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return parseELF(f, st.Size())
}

func (p *program) refuse(name string) error {
	switch {
	case p.class == elf.ELFCLASS32:
		return &UnsupportedError{name, "a 32-bit program"}
	case !p.native():
		return &UnsupportedError{name, fmt.Sprintf("a program for another architecture (%s)", p.machine)}
	case p.interp == "":
		return &UnsupportedError{name, "statically linked"}
	case strings.Contains(path.Base(p.interp), "musl"):
		return &UnsupportedError{name, "linked with musl"}
	case !cleanPath(p.interp) || len(p.loads) == 0:
		return &UnsupportedError{name, "a malformed program"}
	}
	return nil
}
