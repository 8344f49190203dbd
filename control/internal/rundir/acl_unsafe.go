//go:build windows

package rundir

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// currentUser is the security identifier of who runs this process.
func currentUser() (string, error) {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return "", fmt.Errorf("find out who runs this program: %w", err)
	}
	return user.User.Sid.String(), nil
}

// makePrivate makes a folder for this user alone, whatever the list of the
// folder above it would hand down.
func makePrivate(path string) error {
	user, err := currentUser()
	if err != nil {
		return err
	}
	sd, err := windows.SecurityDescriptorFromString(privateList(user))
	if err != nil {
		return fmt.Errorf("describe a private directory: %w", err)
	}
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return &os.PathError{Op: "mkdir", Path: path, Err: err}
	}
	attributes := &windows.SecurityAttributes{SecurityDescriptor: sd}
	attributes.Length = uint32(unsafe.Sizeof(*attributes))
	if err := windows.CreateDirectory(name, attributes); err != nil {
		return &os.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return nil
}

// listProblem says why the open folder is not this user's alone.
func listProblem(dir *os.File) (string, error) {
	user, err := currentUser()
	if err != nil {
		return "", err
	}
	a, err := readAccess(windows.Handle(dir.Fd()))
	if err != nil {
		return "", fmt.Errorf("read who may use the sandbox discovery directory: %w", err)
	}
	return a.problem(user), nil
}

func readAccess(handle windows.Handle) (access, error) {
	sd, err := windows.GetSecurityInfo(handle, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		return access{}, err
	}
	owner, _, err := sd.Owner()
	if err != nil {
		return access{}, err
	}
	a := access{owner: owner.String()}
	list, _, err := sd.DACL()
	if errors.Is(err, windows.ERROR_OBJECT_NOT_FOUND) || err == nil && list == nil {
		a.absent = true
		return a, nil
	}
	if err != nil {
		return access{}, err
	}
	for i := range uint32(list.AceCount) {
		var ace *windows.ACCESS_ALLOWED_ACE
		if err := windows.GetAce(list, i, &ace); err != nil {
			return access{}, err
		}
		e := accessEntry{kind: ace.Header.AceType, flags: ace.Header.AceFlags, rights: uint32(ace.Mask)}
		if e.kind == aceAllow || e.kind == aceAllowCallback {
			// Entries of these kinds have the identifier where SidStart is;
			// the system keeps it within the entry ([MS-DTYP] 2.4.4.2, 2.4.4.6),
			// and sd keeps the memory.
			e.sid = (*windows.SID)(unsafe.Pointer(&ace.SidStart)).String()
		}
		a.entries = append(a.entries, e)
	}
	return a, nil
}
