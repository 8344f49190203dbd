// Package plan is what the host and process 1 of the test VM tell each other:
// the plan goes in as a file, reports come out between the lines of the tests.
package plan

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// File is where the plan lies in the VM, as JSON.
const File = "/plan.json"

// VersionEnv is the variable that tells tests inside the VM its kernel's
// version.
const VersionEnv = "MAF_SANDBOX_TEST_VM"

// Plan is what one boot does.
type Plan struct {
	// Modules are kernel module files, in the order of loading.
	Modules []string
	// Env is added to the environment of every step.
	Env []string
	// Steps are run one after the other, whatever becomes of them; those that
	// need systemd after all others, because process 1 becomes it.
	Steps []Step
}

// Variant says as whom and under what a step is run.
type Variant string

// The variants.
const (
	// Root is user 0, with all control groups to itself.
	Root Variant = "root"
	// Unprivileged is an ordinary user below the control group that the
	// operator's recipe has delegated.
	Unprivileged Variant = "unprivileged"
	// SystemdRoot is user 0 in a service of systemd.
	SystemdRoot Variant = "systemd-root"
	// SystemdUser is an ordinary user in a session of systemd-logind, with a
	// service manager of its own.
	SystemdUser Variant = "systemd-user"
)

// NeedsSystemd says that process 1 has to be systemd.
func (v Variant) NeedsSystemd() bool { return v == SystemdRoot || v == SystemdUser }

// NeedsUserland says that the programs of a Linux system have to be there.
func (v Variant) NeedsUserland() bool { return v != Root }

// The ordinary user. /dev/kvm is for group KVMGroup, of which the user is.
const (
	User     = "tester"
	UserID   = 1000
	UserHome = "/home/" + User
	KVMGroup = 104
)

// Init is where the program of process 1 lies in the VM. With the argument Agent
// it runs the steps that need systemd, as a service of it.
const (
	Init  = "/init"
	Agent = "agent"
	// AgentUnit is the service's name.
	AgentUnit = "testvm.service"
	// PAMService is the name under which users open their session.
	PAMService = "testvm"
)

// Step is one run of a program.
type Step struct {
	Variant Variant
	// Package is the import path of the package whose tests the program holds.
	Package string
	Path    string
	Args    []string
	// Dir is the working folder.
	Dir string
	// Env is the step's own part of the environment.
	Env []string
}

// Kind tells reports apart.
type Kind string

// The kinds of reports.
const (
	// Start: the output of step N follows.
	Start Kind = "start"
	// End: step N ended with Status; 128+n means signal n.
	End Kind = "end"
	// Failed: Words say why the VM cannot go on.
	Failed Kind = "failed"
	// Done: every step was run.
	Done Kind = "done"
)

// Report is one line of process 1.
type Report struct {
	Kind   Kind
	N      int
	Status int
	Words  string
}

// prefix starts a report's line; no test prints a record separator.
const prefix = "\x1etestvm "

// maxNumber bounds step numbers and statuses.
const maxNumber = 1 << 16

// String gives the line, with its end.
func (r Report) String() string {
	switch r.Kind {
	case Start:
		return fmt.Sprintf("%s%s %d\n", prefix, r.Kind, r.N)
	case End:
		return fmt.Sprintf("%s%s %d %d\n", prefix, r.Kind, r.N, r.Status)
	case Failed:
		return fmt.Sprintf("%s%s %s\n", prefix, r.Kind, strings.ReplaceAll(r.Words, "\n", " "))
	default:
		return fmt.Sprintf("%s%s\n", prefix, r.Kind)
	}
}

// Parse reads a line and reports whether it is a report.
func Parse(line []byte) (Report, bool) {
	text, ok := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte(prefix))
	if !ok {
		return Report{}, false
	}
	kind, rest, _ := strings.Cut(string(text), " ")
	r := Report{Kind: Kind(kind)}
	var numbers []*int
	switch r.Kind {
	case Start:
		numbers = []*int{&r.N}
	case End:
		numbers = []*int{&r.N, &r.Status}
	case Failed:
		r.Words = rest
		return r, true
	case Done:
	default:
		return Report{}, false
	}
	fields := strings.Fields(rest)
	if len(fields) != len(numbers) {
		return Report{}, false
	}
	for i, p := range numbers {
		n, err := strconv.Atoi(fields[i])
		if err != nil || n < 0 || n >= maxNumber {
			return Report{}, false
		}
		*p = n
	}
	return r, true
}
