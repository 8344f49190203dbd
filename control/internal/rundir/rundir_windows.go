package rundir

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
)

const nonblock = 0

// Default is the folder when none is configured; every implementation of the
// protocol must find the same.
func Default() string {
	if dir := os.Getenv(EnvDir); dir != "" {
		return dir
	}
	if dir := os.Getenv("LOCALAPPDATA"); dir != "" {
		return filepath.Join(dir, "sokolai", folderName)
	}
	sum := sha256.Sum256([]byte(userName()))
	return filepath.Join(os.TempDir(), folderName+"-"+hex.EncodeToString(sum[:])[:16])
}

// userName is the name that Python's getpass finds.
func userName() string {
	for _, name := range []string{"LOGNAME", "USER", "LNAME", "USERNAME"} {
		if value := os.Getenv(name); value != "" {
			return value
		}
	}
	if u, err := user.Current(); err == nil {
		return u.Username[strings.LastIndexByte(u.Username, '\\')+1:]
	}
	return ""
}

// foreign finds nothing: a mode says nothing here. What counts is the access
// control list of the folder once it is open, see listProblem.
func foreign(fs.FileInfo) string { return "" }

// locksOutliveRename says that nothing here tells whether a host lives.
const locksOutliveRename = false

func lock(*os.File) error { return nil }

func isFree(*os.File) bool { return false }
