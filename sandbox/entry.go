package sandbox

import (
	"errors"
	"fmt"
	"strings"
)

// EntryKind is what a path in a sandbox names.
type EntryKind uint8

// The kinds.
const (
	// EntryFile is a regular file.
	EntryFile EntryKind = iota
	// EntryDirectory is a folder.
	EntryDirectory
	// EntrySymlink is a symbolic link, whatever it leads to.
	EntrySymlink
	// EntryOther is anything else, such as a pipe or a socket.
	EntryOther
)

var entryWords = words{"entry kind", []string{"file", "directory", "symlink", "other"}}

// String is the protocol's word.
func (k EntryKind) String() string { return entryWords.text(uint8(k)) }

// MarshalText is the protocol's word.
func (k EntryKind) MarshalText() ([]byte, error) { return entryWords.marshal(uint8(k)) }

// UnmarshalText takes the protocol's word.
func (k *EntryKind) UnmarshalText(text []byte) error { return take(&entryWords, text, k) }

// UnknownSize is the size of an entry whose size the backend cannot tell. Such
// a file is refused when it is read, since no limit could be kept.
const UnknownSize int64 = -1

// Entry is one file, folder or link of a sandbox.
type Entry struct {
	// Path is absolute, with slashes.
	Path string `json:"path"`
	// Kind is what it is; links are not followed.
	Kind EntryKind `json:"kind"`
	// Size in bytes, or UnknownSize.
	Size int64 `json:"size_bytes"`
}

// OutputDisposition is what becomes of a file that a program leaves as output.
type OutputDisposition uint8

// The dispositions. Land is the zero value.
const (
	// OutputLand stores the file with the host.
	OutputLand OutputDisposition = iota
	// OutputConsume hands it to the caller only.
	OutputConsume
)

var dispositionWords = words{"output disposition", []string{"land", "consume"}}

// String is the protocol's word.
func (d OutputDisposition) String() string { return dispositionWords.text(uint8(d)) }

// MarshalText is the protocol's word.
func (d OutputDisposition) MarshalText() ([]byte, error) { return dispositionWords.marshal(uint8(d)) }

// UnmarshalText takes the protocol's word.
func (d *OutputDisposition) UnmarshalText(text []byte) error { return take(&dispositionWords, text, d) }

// DeclaredOutput is a file that a program is expected to leave.
type DeclaredOutput struct {
	// Path in the sandbox.
	Path string `json:"path"`
	// Disposition says what becomes of it.
	Disposition OutputDisposition `json:"disposition"`
	// MediaType, such as "text/csv"; empty when unknown.
	MediaType string `json:"media_type,omitempty"`
	// Optional files may be missing; without it a missing file is an error.
	Optional bool `json:"optional,omitempty"`
	// Name under which the host stores it; empty for the path's last part.
	Name string `json:"name,omitempty"`
}

// MaxPathBytes bounds a path in a sandbox, as Linux does (PATH_MAX).
const MaxPathBytes = 4096

func (o DeclaredOutput) validate(subject string) error {
	var problems []error
	if err := checkPath(subject+".path", o.Path); err != nil {
		problems = append(problems, err)
	}
	if !dispositionWords.has(uint8(o.Disposition)) {
		problems = append(problems, invalid(subject+".disposition", o.Disposition.String(), "land or consume"))
	}
	return errors.Join(problems...)
}

func checkPath(subject, path string) error {
	if path == "" || len(path) > MaxPathBytes || strings.ContainsRune(path, 0) {
		return invalid(subject, fmt.Sprintf("%q", cut(path)), fmt.Sprintf("a path of up to %d bytes without NUL", MaxPathBytes))
	}
	return nil
}
