//go:build linux && amd64

package main

import (
	"regexp"
	"slices"
	"strings"
)

// rule gives the reason for differences that it matches.
type rule struct {
	// match is matched against "module test: message".
	match  *regexp.Regexp
	reason string
	// host says that the difference depends on the host: on its programs, or on
	// the user who runs the tests.
	host bool
}

func always(match, reason string) rule { return rule{regexp.MustCompile(match), reason, false} }

func onSomeHosts(match, reason string) rule { return rule{regexp.MustCompile(match), reason, true} }

var rules = []rule{
	onSomeHosts(`CAP_DAC_OVERRIDE|[Rr]oot privilege|not enough privileges|set the directory read-only|test_monotonic_settime`, "outside it ran as root, which the sandbox's user is not"),
	onSomeHosts(`test_denial_of_service`, "it measures time, of which a busy machine gives little"),
	always(`does not offer other processes|broken multiprocessing SemLock|^test\.test_compileall .*multiple_workers|^test\.test_(doctest test_CLI|thread TestForkInThread)`, "no other processes in a sandbox"),
	always(`does not offer network sockets|does not offer name resolution|IPv6 support required|Name or service not known`, noNetwork),
	always(`^test\.test_epoll .*EINPROGRESS|Can not create socket`, noNetwork),
	// They wait for a server that could not start.
	always(`^test\.test_logging .*(test_listen_|SysLogHandler)|^test\.test_asyncio test_streams\.StreamTests\.(test_drain_raises|test_unclosed_resource)|^test\.test_os TestSendfile`, noNetwork),
	always(`pidfd`, "no process descriptors in a sandbox"),
	always(`: .*(getpwuid|getgrgid|system database|need a pwd entry|no groups|Could not determine home)`, noUsers),
	always(`^test\.test_(grp|spwd) `, noUsers),
	always(`: .*mkfifo`, "no named pipes in a sandbox"),
	onSomeHosts(`Test locale not supported`, "no locales but C and C.UTF-8 in a sandbox"),
	onSomeHosts(`needs non-root account`, "outside it ran as root, which the sandbox's user is not"),
	always(`^test\.test_signal .*test_itimer_(prof|virtual)`, "no timers that count processor time in a sandbox"),
	always(`^test\.test_os .*test_splice`, "no splice in a sandbox: callers fall back to reading and writing"),
	always(`^test\.test_tarfile .*test_pipe`, "no named pipes in a sandbox"),
	always(`^test\.test_httpservers CGIHTTPServer`, "no other processes in a sandbox"),
	always(`^test\.test_socket .*(SCMRights|SendRecvFds|CmsgTrunc)`, "no control messages on sockets: the one process passes descriptors to nobody"),
	always(`VSOCK sockets required|InterfaceName|scopeid_symbolic`, noNetwork),
	always(`dualstack_ipv6 not supported|dual_stack`, "IPv6 sockets of a sandbox are for IPv6 only"),
	always(`^test\.test_socket .*testGetServBy`, "no database of services in a sandbox"),
	always(`^test\.test_socket .*testHostnameRes`, noNetwork),
	always(`^test\.test_socket .*testRefCountGetNameInfo`, "getnameinfo is wrapped so that refusals read as a sentence"),
	always(`^test\.test_socket .*test_sethostname`, "the name of a sandbox is fixed"),
	always(`^test\.test_ftplib .*test_abort`, "no urgent data on sockets (MSG_OOB)"),
	always(`^test\.test_docxmlrpc .*test_get_css`, "pydoc's data files are not captured"),
	always(`requires POSIX scheduler API`, "no scheduling classes in a sandbox"),
	always(`need /proc/self`, "no /proc in a sandbox"),
	always(`Read-only file system: '/usr/|write access to the installed location`, "the image is read-only; as Linux does, the sandbox says so before it looks for a file"),
	onSomeHosts(`extended attribute`, "no extended attributes in a sandbox"),
	onSomeHosts(`requires? (a shell|ifconfig|ip|gcc)\b|#!/bin/bash|Need the \w+ command|[Gg]cc, needed|execve\(\) to support the fd`, "no other programs in a sandbox"),
	onSomeHosts(`could not find lib|find C library|lib_gl|library to load|^test\.test_ctypes test_find\.`, "an image has the libraries that its Python needs, and no tools to look for others"),
	always(`config-\d|pyconfig\.h`, "what builds extension modules is not captured"),
	always(`No module named 'readline'`, "readline needs a terminal and is not captured"),
	always(`^test\.test_(ctypes|code) .*: MemoryError`, "a callback of ctypes needs memory that is written and then executed, which a sandbox does not have"),
	always(`^test\.test_mmap .*: .*No such device`, "no writable mapping that is shared with a file"),
	always(`^test\.test_mmap .*: .*Cannot allocate memory`, "more than the sandbox's memory"),
	always(`^test\.test_(tty|termios) .*: .*No such file|^test\.test_os .*openpty|pty\.fork\(\)|^test\.test_asyncio .*_pty`, "no terminals in a sandbox"),
	always(`^test\.test_fcntl .*test_fcntl_64_bit`, "no notices of changes in folders (F_NOTIFY) in a sandbox"),
}

const (
	noUsers   = "no database of users in a sandbox"
	noNetwork = "no network in a sandbox"
)

// message is what the outcomes say about a difference. Where a test is absent,
// its module or class says why: then scope is the pattern of all tests in that.
func (j *judged) message(d *Difference) (text, scope string) {
	for _, side := range []struct {
		test  Test
		tests Tests
	}{{d.Guest, j.guest}, {d.Native, j.native}} {
		if side.test.Reason != "" {
			return side.test.Reason, ""
		}
		if side.test.Outcome != Absent {
			continue
		}
		for _, name := range []string{"(module)", "setUpModule (" + j.module + ")"} {
			if t, ok := side.tests[name]; ok {
				return t.Reason, "*"
			}
		}
		for i := range d.Test {
			if d.Test[i] != '.' {
				continue
			}
			full := j.module + "." + d.Test[:i]
			for _, name := range []string{"unittest.loader._FailedTest." + full, "setUpClass (" + full + ")"} {
				if t, ok := side.tests[name]; ok {
					return t.Reason, d.Test[:i] + ".*"
				}
			}
		}
	}
	return "", ""
}

// reason explains a difference as far as its message does.
func reason(d *Difference, message string) (text string, host bool) {
	for _, r := range rules {
		if r.match.MatchString(d.Module + " " + d.Test + ": " + message) {
			return r.reason, r.host
		}
	}
	return unexplained + strings.Join(strings.Fields(message), " "), false
}

// update gives the manifest with the differences of the modules that ran: what
// is stale is gone, what is new is added.
func (m Manifest) update(js []*judged) Manifest {
	ran := make(map[string]bool)
	var fresh Manifest
	for _, j := range js {
		ran[j.module] = true
		ds := m.explain(compare(j.module, j.guest, j.native))
		fresh = append(fresh, condense(j, ds)...)
	}
	stale := m.stale(ran)
	all := slices.DeleteFunc(slices.Clone(m), func(e *Expectation) bool {
		return slices.Contains(stale, e)
	})
	return append(all, fresh...)
}

// kind is what the differences of one line have in common.
type kind struct{ group, guest, native, reason string }

// condense makes lines of a module's differences: one for a whole class or
// module, where all tests in it differ in the same way.
func condense(j *judged, ds []*Difference) Manifest {
	size := make(map[string]map[string]bool) // the tests of each class
	for _, tests := range []Tests{j.guest, j.native} {
		for name := range tests {
			name = strings.TrimPrefix(name, j.module+".")
			g := class(name)
			if size[g] == nil {
				size[g] = make(map[string]bool)
			}
			size[g][name] = true
		}
	}
	kinds := make(map[*Difference]kind)
	count := make(map[kind]int)
	for _, d := range ds {
		kinds[d] = j.kind(d)
		count[kinds[d]]++
	}
	var m Manifest
	lines := make(map[kind]*Expectation)
	for _, d := range ds {
		k := kinds[d]
		whole := k.native == "" || count[k] > 2 && count[k] == len(size[k.group])
		e := lines[k]
		if e == nil || !whole {
			e = &Expectation{Module: d.Module, Test: d.Test, Guest: []Outcome{d.Guest.Outcome}, Reason: k.reason, used: true}
			if whole {
				e.Test = k.group
			}
			lines[k], m = e, append(m, e)
		}
		outside := []Outcome{d.Native.Outcome}
		if k.native != "" {
			outside = parseOutcomes(k.native)
		}
		e.Native = slices.Compact(slices.Sorted(slices.Values(append(e.Native, outside...))))
	}
	return m
}

// class gives the pattern for all tests of a test's class.
func class(test string) string {
	i := strings.LastIndexByte(test, '.')
	if i < 0 || strings.ContainsRune(test, ' ') {
		return test
	}
	return test[:i+1] + "*"
}

// kind says what a difference is like. Its native outcomes are empty where they
// do not matter, since none of the tests of the group is there in the sandbox.
func (j *judged) kind(d *Difference) kind {
	text, scope := j.message(d)
	why, host := reason(d, text)
	k := kind{class(d.Test), string(d.Guest.Outcome), string(d.Native.Outcome), why}
	switch {
	case scope != "" && d.Guest.Outcome == Absent:
		k.group, k.native = scope, ""
	case host:
		k.native = join([]Outcome{d.Native.Outcome, d.Guest.Outcome})
	}
	return k
}
