// Package expect tells tests what the place in which they run has promised to
// have. On a developer's machine nothing is promised, and a test that lacks
// something is skipped. In the test VM (test/vm/run) such a skip would hide that
// the VM is not what it should be: there it is a failure.
package expect

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Env is the variable with the names of the promised things, with commas
// between them.
const Env = "MAF_SANDBOX_TEST_EXPECT"

// Thing is something that a place can promise.
type Thing string

const (
	// KVM is a /dev/kvm that this user may use.
	KVM Thing = "kvm"
	// Cgroup is a folder of control groups that can limit memory, in which this
	// user may make groups.
	Cgroup Thing = "cgroup"
	// Unprivileged is an ordinary user who runs below cgroup.DefaultRoot as the
	// operator's recipe (cgroup.Recipe) left it.
	Unprivileged Thing = "unprivileged"
	// WebPorts are the ports 80 and 443 of loopback, in a network namespace of the
	// test program's own at least (package webports).
	WebPorts Thing = "webports"
	// Systemd is a systemd as process 1 which makes scopes for this user.
	Systemd Thing = "systemd"
)

// Promised says whether a thing is promised.
func (x Thing) Promised() bool {
	return slices.Contains(strings.Split(os.Getenv(Env), ","), string(x))
}

// Skip ends a test that lacks a thing: it is skipped, but where the thing was
// promised it fails. The words say what is missing.
func (x Thing) Skip(t testing.TB, format string, args ...any) {
	t.Helper()
	if x.Promised() {
		t.Fatalf("%s is promised here ("+Env+"): "+format, append([]any{x}, args...)...)
	}
	t.Skipf(format, args...)
}

// Join makes the value of Env.
func Join(things []Thing) string {
	words := make([]string, len(things))
	for i, x := range things {
		words[i] = string(x)
	}
	return strings.Join(words, ",")
}
