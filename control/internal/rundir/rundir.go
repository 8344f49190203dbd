// Package rundir is the folder in which the hosts of one user announce
// themselves: where it is, who may use it, and the files in it. What the files
// say is the caller's matter.
package rundir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Bounds of what is read from a folder that other programs write to as well.
const (
	// MaxFileBytes bounds one announcement; real ones have some 200 bytes.
	MaxFileBytes = 64 << 10
	// MaxEntries bounds the files of the folder.
	MaxEntries = 4096
)

// ErrUnsafe is the class of every [Error]: the folder is not what a private
// folder of this user must be.
var ErrUnsafe = errors.New("unsafe discovery directory")

// Error says why a folder is not used. Nothing about it was changed.
type Error struct {
	// Path is the folder.
	Path string
	// Problem is what is wrong, such as "directory is not private".
	Problem string
}

// Error is one line.
func (e *Error) Error() string { return fmt.Sprintf("sandbox discovery %s: %s", e.Problem, e.Path) }

// Unwrap gives ErrUnsafe.
func (e *Error) Unwrap() error { return ErrUnsafe }

// Dir is an open folder. Whatever is renamed meanwhile, its methods reach the
// folder that was checked.
type Dir struct {
	path string
	root *os.Root
}

// Create opens the folder and makes it where it is missing, for this user
// alone. One that exists is never changed: it is good or refused.
func Create(path string) (*Dir, error) {
	path = bare(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the sandbox discovery directory: %w", err)
	}
	if err := makePrivate(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the sandbox discovery directory: %w", err)
	}
	return Open(path)
}

// Open opens the folder if it is good. A missing one is fs.ErrNotExist.
func Open(path string) (*Dir, error) {
	path = bare(path)
	// The name itself is looked at: a link to a good folder could lead
	// elsewhere tomorrow.
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &Error{path, "path is not a directory"}
	}
	if problem := foreign(info); problem != "" {
		return nil, &Error{path, problem}
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	if err := checkOpened(root, path, info); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Dir{path, root}, nil
}

// bare is a path without the separators and dots after its last name. With them
// the system looks behind that name: "link/" is what the link leads to, and no
// link.
func bare(path string) string {
	for len(path) > len(filepath.VolumeName(path))+1 {
		last := len(path) - 1
		if !os.IsPathSeparator(path[last]) && (path[last] != '.' || !os.IsPathSeparator(path[last-1])) {
			break
		}
		path = path[:last]
	}
	return path
}

// checkOpened says whether what was opened is what was looked at, and whether
// its access control list, on systems that go by one, lets in nobody else.
func checkOpened(root *os.Root, path string, info fs.FileInfo) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	opened, err := dir.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(info, opened) {
		return &Error{path, "directory was replaced while it was opened"}
	}
	problem, err := listProblem(dir)
	if err == nil && problem != "" {
		err = &Error{path, problem}
	}
	return err
}

// Path is the folder's name.
func (d *Dir) Path() string { return d.path }

// Close lets go of the folder.
func (d *Dir) Close() error { return d.root.Close() }

// File is an announcement: its name in the folder and what it says.
type File struct {
	Name string
	Data []byte
}

// EnvDir names the variable that says where the folder is.
const EnvDir = "MAF_SANDBOX_TUI_RUNTIME_DIR"

// folderName is the folder's name in the places where it is by default.
const folderName = "maf-sandbox-tui"

const (
	suffix     = ".json"
	tempSuffix = suffix + ".tmp"
)

// Files reads all announcements in the order of their names. What cannot be
// read, is too long or is no regular file is left out; only too many files are
// an error.
func (d *Dir) Files() ([]File, error) {
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	var files []File
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		if data, err := d.read(name); err == nil {
			files = append(files, File{name, data})
		}
	}
	return files, nil
}

func (d *Dir) names() ([]string, error) {
	var names []string
	if err := d.each(func(some []string) bool {
		names = append(names, some...)
		return len(names) <= MaxEntries
	}); err != nil {
		return nil, err
	}
	if len(names) > MaxEntries {
		return nil, fmt.Errorf("the sandbox discovery directory has more than %d files; remove those of hosts that are gone: %s", MaxEntries, d.path)
	}
	slices.Sort(names)
	return names, nil
}

// batch is how many names are looked at together.
const batch = 512

// each gives the names of the folder's files, some at a time and in no order, to
// a function that says whether it wants more.
func (d *Dir) each(more func(names []string) bool) error {
	f, err := d.root.Open(".")
	if err != nil {
		return fmt.Errorf("read the sandbox discovery directory: %w", err)
	}
	defer func() { _ = f.Close() }()
	for {
		names, err := f.Readdirnames(batch)
		if len(names) > 0 && !more(names) {
			return nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the sandbox discovery directory: %w", err)
		}
	}
}

func (d *Dir) read(name string) ([]byte, error) {
	f, err := d.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err == nil && len(data) > MaxFileBytes {
		err = fmt.Errorf("%s is longer than %d bytes", name, MaxFileBytes)
	}
	return data, err
}

// open opens a regular file and nothing else.
func (d *Dir) open(name string) (*os.File, error) {
	info, err := d.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	if err == nil && !os.SameFile(info, opened) {
		err = fmt.Errorf("%s was replaced while it was opened", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Held says whether a process keeps the lock of a file of the folder, as the host
// of an announcement does for as long as it lives. On systems without such locks
// every file counts as held that is there. An error says that it cannot be told;
// that of a missing file is fs.ErrNotExist.
func (d *Dir) Held(name string) (bool, error) {
	f, err := d.open(name)
	if err != nil {
		return false, fmt.Errorf("look at the lock of %s: %w", name, err)
	}
	defer func() { _ = f.Close() }()
	return !locksOutliveRename || !isFree(f), nil
}

// NewStem makes a name for a host's files that no other host has.
func NewStem() string {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails, says its documentation
	return fmt.Sprintf("%d-%s", os.Getpid(), hex.EncodeToString(id[:]))
}

// Announcement is a file that this process keeps in the folder. It is locked as
// long as the process lives, so that others can tell whether it does: a process
// id says nothing across containers.
type Announcement struct {
	dir  *Dir
	name string
	file *os.File
}

// Announce publishes a file for this user alone under the stem's name. It
// appears whole or not at all.
func (d *Dir) Announce(stem string, data []byte) (*Announcement, error) {
	temp, name := stem+tempSuffix, stem+suffix
	f, err := d.root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("announce the control server: %w", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = lock(f)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = d.root.Rename(temp, name)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("announce the control server: %w", err), f.Close(), ignoreMissing(d.root.Remove(temp)))
	}
	return &Announcement{d, name, f}, nil
}

// Name is the file's name in the folder.
func (a *Announcement) Name() string { return a.name }

// Withdraw removes the file, if it is still this one, and gives up its lock. A
// file or folder that somebody removed before is no error.
func (a *Announcement) Withdraw() error {
	var err error
	mine, statErr := a.file.Stat()
	there, lstatErr := a.dir.root.Lstat(a.name)
	switch {
	case statErr != nil:
		err = statErr
	case lstatErr != nil:
		err = ignoreMissing(lstatErr)
	case os.SameFile(mine, there):
		err = ignoreMissing(a.dir.root.Remove(a.name))
	}
	if err != nil {
		err = fmt.Errorf("withdraw the announcement: %w", err)
	}
	return errors.Join(err, a.file.Close())
}

// staleAfter is how old an unfinished announcement must be to count as left
// behind: writing one takes milliseconds.
const staleAfter = time.Minute

// Sweep removes what hosts of this kind that are gone have left: announcements
// that ours recognises and no process has locked, with the other files of the
// same stem. What cannot be removed stays. However many files there are, all are
// looked at: with more than MaxEntries nobody else reads the folder. On systems
// without such locks nothing is removed.
func (d *Dir) Sweep(ours func(data []byte) bool) {
	if !locksOutliveRename {
		return
	}
	_ = d.each(func(names []string) bool { // of a folder that cannot be read nothing is removed
		for _, name := range names {
			d.sweepNamed(name, ours)
		}
		return true
	})
}

func (d *Dir) sweepNamed(name string, ours func([]byte) bool) {
	switch {
	case strings.HasSuffix(name, suffix):
		d.sweep(name, strings.TrimSuffix(name, suffix), ours)
	case strings.HasSuffix(name, tempSuffix):
		info, err := d.root.Lstat(name)
		if err == nil && time.Since(info.ModTime()) > staleAfter {
			d.sweep(name, strings.TrimSuffix(name, tempSuffix), ours)
		}
	}
}

func (d *Dir) sweep(name, stem string, ours func([]byte) bool) {
	f, err := d.open(name)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes))
	if err != nil || !ours(data) || lock(f) != nil {
		return
	}
	_ = d.root.Remove(name)
	_ = d.root.Remove(stem + SocketSuffix)
}

// SocketSuffix ends the name of a host's socket in the folder.
const SocketSuffix = ".sock"

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
