//go:build linux

package engine

import (
	"debug/elf"
	"encoding/hex"
	"runtime"
	"sync"
)

// buildID identifies this build of the program by the note that the Go linker
// writes (ELF section .note.go.buildid): it changes with every change of the
// code, so no template outlives the program that made it.
var buildID = sync.OnceValue(func() string {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return "unknown " + runtime.Version()
	}
	defer func() { _ = f.Close() }()
	s := f.Section(".note.go.buildid")
	if s == nil || s.Size > 4096 {
		return "unknown " + runtime.Version()
	}
	b, err := s.Data()
	if err != nil {
		return "unknown " + runtime.Version()
	}
	return hex.EncodeToString(b)
})
