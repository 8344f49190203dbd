//go:build linux && amd64

package kvmvm

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// maxLarge bounds the large pages of code that are kept: what an interpreter has
// loaded when it is ready.
const maxLarge = 8

// largeSeals are those of a file of code that may be used: nobody can change it.
const largeSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// large is a file that holds pieces of a backing in large pages, one after the
// other, and its name behind them.
type large struct {
	backing *platform.Backing
	fd      int
	at      []uint64 // where the pieces belong
}

// UseLarge implements platform.LargeCode.
func (p *Platform) UseLarge(b *platform.Backing, spans []platform.Span, fd int, name string) error {
	l := &large{backing: b, fd: fd, at: largeCode(b, spans)}
	if len(l.at) == 0 {
		return nil
	}
	var text strings.Builder
	text.WriteString(name)
	for _, a := range l.at {
		_, _ = fmt.Fprintf(&text, " %x", a)
	}
	label := text.String()
	sealed, err := isSealed(fd)
	if err == nil && !sealed {
		err = l.fill(label)
	}
	if err != nil {
		return fmt.Errorf("large pages: %w", err)
	}
	if !l.labelled(label) {
		return errors.New("large pages: the file is another template's, or there were none")
	}
	p.large.Store(l)
	return nil
}

// largeCode finds the large pages of a backing that hold nothing but code.
func largeCode(b *platform.Backing, spans []platform.Span) (at []uint64) {
	for _, s := range spans {
		if s.Prot&(platform.Exec|platform.Write) != platform.Exec {
			continue
		}
		for lo := (s.Lo + largePage - 1) &^ (largePage - 1); lo+largePage <= s.Hi && len(at) < maxLarge; lo += largePage {
			end, data := b.Split(lo, lo+largePage)
			// A library that was not loaded has nothing in its place yet.
			if end == lo+largePage && data != nil && !allZero(data[:platform.PageSize]) {
				at = append(at, lo)
			}
		}
	}
	return at
}

func isSealed(fd int) (bool, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil && seals&largeSeals == largeSeals, err
}

// fill makes the file and seals it. Of several processes one does, in 2 ms, and
// the others wait for it. A file that cannot have large pages is sealed without a
// name, so that nobody tries again.
func (l *large) fill(label string) (err error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	for {
		err := unix.FcntlFlock(uintptr(l.fd), unix.F_SETLKW, &lock)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	defer func() {
		unlock := unix.Flock_t{Type: unix.F_UNLCK}
		err = errors.Join(err, unix.FcntlFlock(uintptr(l.fd), unix.F_SETLK, &unlock))
	}()
	if sealed, err := isSealed(l.fd); sealed || err != nil {
		return err
	}
	size := len(l.at) * largePage
	// What a process that was killed has left goes first.
	for _, n := range []int{0, size + platform.PageSize} {
		if err := unix.Ftruncate(l.fd, int64(n)); err != nil {
			return err
		}
	}
	for i, lo := range l.at {
		_, data := l.backing.Split(lo, lo+largePage)
		if err := writeAt(l.fd, data, i*largePage); err != nil {
			return err
		}
	}
	if l.collapse(size) == nil {
		err = writeAt(l.fd, []byte(label), size)
	} else {
		err = unix.Ftruncate(l.fd, 0)
	}
	if err != nil {
		return err
	}
	_, err = unix.FcntlInt(uintptr(l.fd), unix.F_ADD_SEALS, largeSeals)
	return err
}

// collapse turns the small pages of the file into large ones. Kernels before 6.1
// do not.
func (l *large) collapse(size int) error {
	mem, err := mapGuest(uint64(size), unix.MAP_SHARED, l.fd)
	if err != nil {
		return err
	}
	return errors.Join(unix.Madvise(mem, unix.MADV_COLLAPSE), unmapGuest(mem))
}

func writeAt(fd int, b []byte, at int) error {
	n, err := unix.Pwrite(fd, b, int64(at))
	if err == nil && n < len(b) {
		err = unix.ENOSPC
	}
	return err
}

// labelled reports whether the file has this name and can no longer change.
func (l *large) labelled(label string) bool {
	if sealed, err := isSealed(l.fd); err != nil || !sealed {
		return false
	}
	b := make([]byte, platform.PageSize)
	n, err := unix.Pread(l.fd, b, int64(len(l.at)*largePage))
	return err == nil && n == len(b) && len(label) < len(b) && string(b[:len(label)]) == label && b[len(label)] == 0
}
