package main

import (
	"fmt"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/plan"
)

// setup are the files that an installer would write: users, who may do what, and
// the service that runs the steps below systemd.
var setup = []struct {
	name string // without the leading slash
	mode uint32
	text string
}{
	{"etc/passwd", 0o644, fmt.Sprintf(`root:x:0:0:root:/root:/bin/sh
messagebus:x:100:100::/nonexistent:/usr/sbin/nologin
systemd-network:x:998:998::/nonexistent:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
%s:x:%d:%d::%s:/bin/sh
`, plan.User, plan.UserID, plan.UserID, plan.UserHome)},
	{"etc/group", 0o644, fmt.Sprintf(`root:x:0:
adm:x:4:
tty:x:5:
utmp:x:43:
messagebus:x:100:
systemd-network:x:998:
systemd-journal:x:999:
kvm:x:%d:%s
%s:x:%d:
nogroup:x:65534:
`, plan.KVMGroup, plan.User, plan.User, plan.UserID)},
	{"etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"},
	{"etc/hosts", 0o644, "127.0.0.1 localhost testvm\n"},
	{"etc/fstab", 0o644, ""},
	{"etc/machine-id", 0o444, "5d41402abc4b2a76b9719d911017c592\n"},
	{"etc/sudoers", 0o440, fmt.Sprintf("root ALL=(ALL:ALL) ALL\n%s ALL=(ALL:ALL) NOPASSWD: ALL\n", plan.User)},
	// Nobody has a password here.
	{"etc/pam.d/other", 0o644, permit},
	{"etc/pam.d/sudo", 0o644, permit},
	{"etc/pam.d/systemd-user", 0o644, permit + "session required pam_systemd.so\n"},
	{"etc/pam.d/" + plan.PAMService, 0o644, permit + "session required pam_systemd.so class=user\n"},
	{"etc/systemd/system/" + plan.AgentUnit, 0o644, fmt.Sprintf(`[Unit]
Description=Steps of the test VM
# Wants: without them the steps fail, which is better than to wait.
Wants=dbus.socket systemd-logind.service
After=dbus.socket systemd-logind.service
# What does not come up must not hang.
JobTimeoutSec=240
JobTimeoutAction=reboot-force
FailureAction=reboot-force

[Service]
Type=exec
ExecStart=%s %s
`, plan.Init, plan.Agent)},
	{"etc/systemd/journald.conf.d/console.conf", 0o644, "[Journal]\nStorage=none\nForwardToConsole=yes\n"},
	// Not installed, and not needed. An empty unit is a masked one.
	{"etc/systemd/system/ldconfig.service", 0o644, ""},
	{"etc/systemd/system/systemd-modules-load.service", 0o644, ""},
	// Nothing here waits for somebody at a console.
	{"etc/systemd/system/emergency.service", 0o644, "[Unit]\nDescription=Nobody could mend it\nDefaultDependencies=no\n\n[Service]\nExecStart=/usr/bin/systemctl --force --force reboot\n"},
}

const permit = `auth required pam_permit.so
account required pam_permit.so
password required pam_deny.so
session required pam_permit.so
`
