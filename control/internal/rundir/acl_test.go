package rundir

import (
	"strings"
	"testing"
)

func TestAnAccessListThatLetsOthersInIsRefused(t *testing.T) {
	const (
		me, other, everyone, users = "S-1-5-21-1-2-3-1001", "S-1-5-21-1-2-3-1002", "S-1-1-0", "S-1-5-32-545"
		all                        = 0x1f01ff
		notMine, notPrivate        = "directory is not owned by this user", "directory is not private"
	)
	allow := func(sid string) accessEntry { return accessEntry{kind: aceAllow, rights: all, sid: sid} }
	mine := func(entries ...accessEntry) access { return access{owner: me, entries: entries} }
	for _, tt := range []struct {
		name string
		a    access
		want string
	}{
		{"a user's own local data", mine(allow(sidSystem), allow(sidAdministrators), allow(me)), ""},
		{"as Python makes private folders", mine(allow(sidSystem), allow(sidAdministrators), allow(sidOwnerRights)), ""},
		{"of an elevated program", access{owner: sidAdministrators, entries: []accessEntry{allow(sidAdministrators), allow(me)}}, ""},
		{"for nobody", mine(), ""},
		{"new files are their maker's", mine(allow(me), accessEntry{kind: aceAllow, flags: aceFlagInheritedOnly, rights: all, sid: sidCreatorOwner}), ""},
		{"an entry without rights", mine(allow(me), accessEntry{kind: aceAllow, sid: everyone}), ""},
		{"somebody is kept out", mine(accessEntry{kind: aceDeny, rights: all, sid: other}, allow(me)), ""},
		{"somebody is kept out on a condition", mine(accessEntry{kind: aceDenyCallback, rights: all}, allow(me)), ""},

		{"of another user", access{owner: other, entries: []accessEntry{allow(me)}}, notMine},
		{"of the system", access{owner: sidSystem, entries: []accessEntry{allow(me)}}, notMine},
		{"of nobody", access{entries: []accessEntry{allow(me)}}, notMine},
		{"without a list", access{owner: me, absent: true}, notPrivate},
		{"another user", mine(allow(me), allow(other)), notPrivate},
		{"everyone may read", mine(allow(me), accessEntry{kind: aceAllow, rights: 0x1200a9, sid: everyone}), notPrivate},
		{"users may add files", mine(allow(me), accessEntry{kind: aceAllow, rights: 0x2, sid: users}), notPrivate},
		{"new files are everyone's", mine(allow(me), accessEntry{kind: aceAllow, flags: aceFlagInheritedOnly | 0x3, rights: all, sid: everyone}), notPrivate},
		{"whoever made it, who may be another", mine(allow(me), allow(sidCreatorOwner)), notPrivate},
		{"another user on a condition", mine(allow(me), accessEntry{kind: aceAllowCallback, rights: all, sid: other}), notPrivate},
		{"this user on a condition", mine(accessEntry{kind: aceAllowCallback, rights: all, sid: me}), ""},
		{"an object's entry", mine(allow(me), accessEntry{kind: 5, rights: all}), notPrivate},
		{"a kind of entry that nobody knows", mine(allow(me), accessEntry{kind: 200}), notPrivate},
		{"permitted after it was denied", mine(accessEntry{kind: aceDeny, rights: all, sid: everyone}, allow(everyone)), notPrivate},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.a.problem(me); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestAPrivateFolderIsDescribedForItsUserTheSystemAndAdministrators(t *testing.T) {
	const user = "S-1-5-21-1-2-3-1001"
	got := privateList(user)
	if want := "O:" + user + "D:P(A;OICI;FA;;;" + user + ")(A;OICI;FA;;;S-1-5-18)(A;OICI;FA;;;S-1-5-32-544)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if strings.Count(got, "(") != 3 {
		t.Errorf("other entries: %s", got)
	}
}
