//go:build linux

package snapshot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/private"
)

// A mark beside a memory file says which file was verified since this machine was
// started, so that the next process need not do it again: it takes as long as
// everything else that opening a template takes.
const (
	markSuffix = ".verified"
	// maxMark bounds a mark, in bytes.
	maxMark = 512
	// settled is how old a file's last change must be for a mark: the next change
	// then has another time for certain, however coarse the kernel's clock for
	// files.
	settled = 2 * time.Second
)

// stamp is a file's Template.Stamp, and when it was last changed.
func stamp(fd int) (mark string, changed time.Time, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", changed, err
	}
	mark = fmt.Sprintf("%x:%x:%x:%x.%x:%x.%x", st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec)
	return mark, time.Unix(st.Ctim.Unix()), nil
}

// started names the time since this machine was started: what was read from a disk
// before may be read again from it now.
func started() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// marked gives the stamp of the memory file that was verified; empty for none.
func marked(dir, key string) string {
	f, err := private.Open(filepath.Join(dir, key+markSuffix))
	if err != nil {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, maxMark))
	_ = f.Close()
	if err != nil {
		return ""
	}
	now, err := started()
	if stamp, ok := strings.CutSuffix(string(b), " "+now+"\n"); ok && err == nil {
		return stamp
	}
	return ""
}

// mark notes that a memory file was verified. Without it the next process
// verifies it, too.
func mark(dir, key, stamp string) error {
	now, err := started()
	if err != nil {
		return err
	}
	f, err := private.Create(dir)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(f, "%s %s\n", stamp, now); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return private.Publish(f, filepath.Join(dir, key+markSuffix))
}
