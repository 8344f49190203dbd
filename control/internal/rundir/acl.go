package rundir

import "slices"

// This file decides about access control lists as Windows has them. It knows no
// system call, so that it is tested everywhere.

// Security identifiers that are the same on every Windows.
// https://learn.microsoft.com/windows-server/identity/ad-ds/manage/understand-security-identifiers
const (
	sidSystem         = "S-1-5-18"
	sidAdministrators = "S-1-5-32-544"
	// sidCreatorOwner stands for whoever makes a file, in entries that only
	// new files take over.
	sidCreatorOwner = "S-1-3-0"
	// sidOwnerRights stands for the owner of the file that has the entry.
	sidOwnerRights = "S-1-3-4"
)

// Types of entries, and the flag of those that count for new files only
// ([MS-DTYP] 2.4.4.1).
const (
	aceAllow             = 0
	aceDeny              = 1
	aceDenyObject        = 6
	aceAllowCallback     = 9
	aceDenyCallback      = 10
	aceDenyObjCallback   = 12
	aceFlagInheritedOnly = 0x08
)

// accessEntry is one entry of an access control list.
type accessEntry struct {
	kind, flags uint8
	rights      uint32
	// sid is whom it is about; empty where the entry's kind is not understood.
	sid string
}

// access is who may do something with a folder.
type access struct {
	owner string
	// absent: there is no list at all, so everybody may do everything.
	absent  bool
	entries []accessEntry
}

// problem says why a folder is not the user's alone, in the words that a wrong
// mode gets elsewhere; empty when it is. Administrators and the system count as
// the user: they can take whatever they want. What is not understood is taken
// for a permission.
func (a access) problem(user string) string {
	trusted := []string{user, sidSystem, sidAdministrators}
	// An elevated program's folders belong to the administrators.
	if a.owner != user && a.owner != sidAdministrators {
		return "directory is not owned by this user"
	}
	if a.absent {
		return "directory is not private"
	}
	for _, e := range a.entries {
		switch e.kind {
		case aceDeny, aceDenyObject, aceDenyCallback, aceDenyObjCallback:
			continue
		case aceAllow, aceAllowCallback:
			switch {
			case e.rights == 0 || slices.Contains(trusted, e.sid) || e.sid == sidOwnerRights:
				continue
			case e.sid == sidCreatorOwner && e.flags&aceFlagInheritedOnly != 0:
				continue
			}
		}
		return "directory is not private"
	}
	return ""
}

// privateList is the security descriptor of a folder for one user, the system
// and the administrators, which takes nothing over from the folder above it
// (SDDL: owner; protected list; allow, also to what is made inside, all file
// rights, to each).
func privateList(user string) string {
	const all = "(A;OICI;FA;;;"
	return "O:" + user + "D:P" + all + user + ")" + all + sidSystem + ")" + all + sidAdministrators + ")"
}
