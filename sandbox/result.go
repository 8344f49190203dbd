package sandbox

import (
	"strings"
	"unicode/utf8"
)

// ExecResult is what a program or a command left behind. Output is kept as the
// bytes that were written, which need not be text.
type ExecResult struct {
	// Stdout and Stderr are the output, whole: it is never cut.
	Stdout, Stderr []byte
	// ExitCode is what a process running the program would report.
	ExitCode int
	// ProducerOwnsStderr says that all of Stderr was written by whoever ran
	// the program, none of it by the program itself.
	ProducerOwnsStderr bool
}

// StdoutText is Stdout as UTF-8, with U+FFFD in place of what is not.
func (r ExecResult) StdoutText() string { return decode(r.Stdout) }

// StderrText is Stderr as UTF-8, with U+FFFD in place of what is not.
func (r ExecResult) StderrText() string { return decode(r.Stderr) }

// decode replaces what is not UTF-8 as Python and browsers do: one U+FFFD for
// each maximal part that could have begun a character (Unicode, section 3.9),
// where a Go range loop would give one for each byte.
func decode(output []byte) string {
	if utf8.Valid(output) {
		return string(output)
	}
	var b strings.Builder
	b.Grow(len(output))
	for len(output) > 0 {
		r, size := utf8.DecodeRune(output)
		if r == utf8.RuneError && size <= 1 {
			size = begun(output)
		}
		b.WriteRune(r)
		output = output[size:]
	}
	return b.String()
}

// begun is how many of the first bytes could have begun a character, and at
// least 1. Precondition: the bytes do not begin with a whole one.
func begun(output []byte) int {
	need, low, high := 0, byte(0x80), byte(0xbf)
	switch first := output[0]; {
	case first >= 0xc2 && first <= 0xdf:
		need = 1
	case first >= 0xe0 && first <= 0xef:
		need = 2
	case first >= 0xf0 && first <= 0xf4:
		need = 3
	}
	// What the second byte must be, so that no character has two forms, is no
	// surrogate and is not beyond U+10FFFF.
	switch output[0] {
	case 0xe0:
		low = 0xa0
	case 0xed:
		high = 0x9f
	case 0xf0:
		low = 0x90
	case 0xf4:
		high = 0x8f
	}
	size := 1
	for size <= need && size < len(output) && output[size] >= low && output[size] <= high {
		low, high = 0x80, 0xbf
		size++
	}
	return size
}
