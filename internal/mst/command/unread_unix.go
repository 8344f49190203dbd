//go:build linux || darwin

package command

import (
	"os"

	"golang.org/x/sys/unix"
)

// outputClosed says whether the program was started with a closed standard
// output. Go opens the null device in its place before any of us runs, for
// reading and writing; shells open it for writing alone, and that is no closed
// one.
func outputClosed() bool {
	flags, err := unix.FcntlInt(os.Stdout.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return err != nil
	}
	out, err := os.Stdout.Stat()
	if err != nil {
		return true
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(out, null)
}
