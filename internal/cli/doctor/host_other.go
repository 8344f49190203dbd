//go:build !(linux && amd64)

package doctor

import (
	"errors"
	"io/fs"
)

func probeKVM() (KVMStep, error) { return KVMNothing, errors.ErrUnsupported }
func pagemapScan() bool          { return false }
func deviceGroup() string        { return "" }
func lockDir() (string, error)   { return "", errors.ErrUnsupported }
func owned(fs.FileInfo) bool     { return false }
func writable(string) error      { return errors.ErrUnsupported }

func probeFeatures() (int, []string, error) { return 0, nil, errors.ErrUnsupported }
