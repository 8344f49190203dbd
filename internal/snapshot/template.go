//go:build linux

// Package snapshot keeps a booted guest as a template: its memory as a file
// that machines map copy on write, its processor and process state beside it,
// in this process or in a folder of files that outlives it.
package snapshot

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// Template is what every machine of an image starts from.
type Template struct {
	Layout  *linux.Layout
	State   *linux.State
	Context platform.Context
	Backing *platform.Backing
	// Spans are the layout's, computed once.
	Spans []platform.Span
	// Stamp tells the memory file that was read from all others, and from what
	// it was before any change; empty for a template that was not read.
	Stamp string
}

// Errors of this package.
var (
	// ErrAbsent: there is no such template.
	ErrAbsent = errors.New("no template")
	// ErrDamaged: a template's files are not as they were written.
	ErrDamaged = errors.New("template damaged")
)

// Take makes a template of a parked process. fd is the machine's memory file;
// the template owns it. The machine is of no use afterwards.
func Take(m platform.Machine, fd int, p *linux.Process, l *linux.Layout) (*Template, error) {
	t := &Template{Layout: l, Spans: l.Spans()}
	var err error
	if t.State, err = p.Save(); err == nil {
		err = m.Save(&t.Context)
	}
	if err == nil {
		err = t.clean(m, fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	t.Backing, err = platform.NewBacking(fd, []platform.Range{
		{Lo: 0, Hi: max(pageUp(t.State.BrkFresh), l.Brk.Lo)},
		{Lo: l.Heap.Lo, Hi: max(pageUp(t.State.Fresh), l.Heap.Lo+platform.PageSize)},
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

func pageUp(a uint64) uint64 { return (a + platform.PageSize - 1) &^ (platform.PageSize - 1) }

// clean drops what the guest has freed, so that it neither takes room nor has
// to be told from zero later.
func (t *Template) clean(m platform.Machine, fd int) error {
	s := t.State
	if s.Brk < s.BrkFresh && !m.Zero(s.Brk, s.BrkFresh-s.Brk) {
		return fmt.Errorf("%w: break", linux.ErrState)
	}
	// Beyond what was ever handed out there may be pages made ready for nothing.
	drop := append(slices.Clone(s.Free), platform.Range{Lo: pageUp(s.BrkFresh), Hi: t.Layout.Brk.Hi}, platform.Range{Lo: s.Fresh, Hi: s.End})
	for _, r := range drop {
		if r.Lo >= r.Hi {
			continue
		}
		err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(r.Lo), int64(r.Hi-r.Lo))
		if err != nil {
			return fmt.Errorf("drop freed memory: %w", err)
		}
	}
	// Everything the guest may be given again reads as zero now.
	s.BrkFresh = max(s.Brk, s.BrkFresh)
	return nil
}

// Close releases the template. No machine of it may be left.
func (t *Template) Close() error { return t.Backing.Close() }
