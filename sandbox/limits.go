package sandbox

import (
	"errors"
	"fmt"
)

// The default limits of transfers.
const (
	// DefaultBytesPerFile bounds one file, in bytes.
	DefaultBytesPerFile = 8 << 20
	// DefaultTotalBytes bounds all files of a call together, in bytes.
	DefaultTotalBytes = 32 << 20
	// DefaultFiles bounds how many files a call moves.
	DefaultFiles = 64
)

// TransferLimits bound what one call moves into or out of a sandbox. A zero
// field means its default.
type TransferLimits struct {
	// MaxBytesPerFile bounds one file, in bytes.
	MaxBytesPerFile int64 `json:"max_bytes_per_file"`
	// MaxTotalBytes bounds all files together, in bytes.
	MaxTotalBytes int64 `json:"max_total_bytes"`
	// MaxFiles bounds how many there are.
	MaxFiles int `json:"max_files"`
}

// OrDefault puts the defaults in place of zeros.
func (l TransferLimits) OrDefault() TransferLimits {
	if l.MaxBytesPerFile == 0 {
		l.MaxBytesPerFile = DefaultBytesPerFile
	}
	if l.MaxTotalBytes == 0 {
		l.MaxTotalBytes = DefaultTotalBytes
	}
	if l.MaxFiles == 0 {
		l.MaxFiles = DefaultFiles
	}
	return l
}

// Within says whether no limit is wider than the other's.
func (l TransferLimits) Within(other TransferLimits) bool {
	l, other = l.OrDefault(), other.OrDefault()
	return l.MaxBytesPerFile <= other.MaxBytesPerFile && l.MaxTotalBytes <= other.MaxTotalBytes &&
		l.MaxFiles <= other.MaxFiles
}

// String tells the limits to people.
func (l TransferLimits) String() string {
	l = l.OrDefault()
	return fmt.Sprintf("%d bytes a file, %d bytes, %d files", l.MaxBytesPerFile, l.MaxTotalBytes, l.MaxFiles)
}

func (l TransferLimits) validate(subject string) error {
	negative := func(field string, value int64) error {
		if value >= 0 {
			return nil
		}
		return invalid(subject+"."+field, fmt.Sprint(value), "zero for the default, or more")
	}
	return errors.Join(
		negative("max_bytes_per_file", l.MaxBytesPerFile),
		negative("max_total_bytes", l.MaxTotalBytes),
		negative("max_files", int64(l.MaxFiles)),
	)
}

// Limits bound the files that go into a sandbox and come out of it.
type Limits struct {
	// FilesIn bound what goes in.
	FilesIn TransferLimits `json:"files_in"`
	// FilesOut bound what comes out.
	FilesOut TransferLimits `json:"files_out"`
}

// Within says whether both directions are within the other's.
func (l Limits) Within(other Limits) bool {
	return l.FilesIn.Within(other.FilesIn) && l.FilesOut.Within(other.FilesOut)
}

// Validate reports every limit below zero.
func (l Limits) Validate() error {
	return errors.Join(l.FilesIn.validate("limits.files_in"), l.FilesOut.validate("limits.files_out"))
}
