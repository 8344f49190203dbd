package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

// Source is where the program's text comes from: Code, or else File, where "-"
// is standard input.
type Source struct {
	File, Code string
}

// name is what tracebacks call the source. The path to a file is not the
// guest's business.
func (s Source) name() string {
	switch s.File {
	case "":
		return "<string>"
	case "-":
		return "<stdin>"
	}
	name := streams.OneLine(filepath.Base(s.File))
	// File systems allow 255 bytes, but controls have become longer.
	return strings.ToValidUTF8(name[:min(len(name), maxName)], "?")
}

// argv0 is what the program is called in its own sys.argv, as CPython would have
// it, again without the path.
func (s Source) argv0() string {
	switch s.File {
	case "":
		return "-c"
	case "-":
		return "-"
	}
	return s.name()
}

// maxName bounds the name that tracebacks show, in bytes.
const maxName = 255

// read gives the text, which is never larger than the engine's limit.
func (s Source) read(stdin io.Reader) ([]byte, error) {
	switch s.File {
	case "":
		return bounded(strings.NewReader(s.Code), "the code", int64(len(s.Code)))
	case "-":
		return bounded(stdin, "standard input", -1)
	}
	f, err := os.Open(s.File)
	if err != nil {
		return nil, readError(s.File, err)
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, readError(s.File, err)
	}
	size := int64(-1)
	if info.Mode().IsRegular() {
		size = info.Size()
	}
	return bounded(f, s.File, size)
}

// bounded reads all of r, of which size says how large it is (negative: not
// known).
func bounded(r io.Reader, name string, size int64) ([]byte, error) {
	const limit = microvm.DefaultMaxCode
	if size > limit {
		return nil, fmt.Errorf("%s has %d bytes, more than the limit of %s", name, size, cli.FormatSize(limit))
	}
	code, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, readError(name, err)
	}
	if len(code) > limit {
		return nil, fmt.Errorf("%s has more than the limit of %s", name, cli.FormatSize(limit))
	}
	if !utf8.Valid(code) {
		return nil, fmt.Errorf("%s is not UTF-8", name)
	}
	return code, nil
}

// readError says what could not be read and why, without the name of the
// system call.
func readError(name string, err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("%s: %w", name, err)
}
