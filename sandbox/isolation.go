package sandbox

// Isolation is the ladder of what stands between a program and its host.
// Rungs compare with <, weakest first.
type Isolation uint8

// The rungs, weakest first. Unset is below all of them: as a floor it asks
// for nothing, and a backend that declares it meets no floor.
const (
	// IsolationUnset is no rung.
	IsolationUnset Isolation = iota
	// IsolationNone: the program runs in the host's own process.
	IsolationNone
	// IsolationRuntime: a language runtime, such as WebAssembly's, within the
	// host's process.
	IsolationRuntime
	// IsolationProcess: a process with fewer rights. Its word is os_process.
	IsolationProcess
	// IsolationContainer: namespaces and limits of a kernel that is shared with
	// the host.
	IsolationContainer
	// IsolationHardenedContainer: a container whose system calls do not reach the
	// host's kernel, or only a few of them.
	IsolationHardenedContainer
	// IsolationMicroVM: a virtual machine, with hardly a device, for one sandbox.
	IsolationMicroVM
	// IsolationVM: a whole virtual machine with a kernel of its own.
	IsolationVM
)

var isolationWords = words{"isolation", []string{
	"", "none", "runtime", "os_process", "container", "hardened_container", "microvm", "vm",
}}

// Meets says whether this rung is at least the floor.
func (i Isolation) Meets(floor Isolation) bool { return i >= floor }

// String is the protocol's word; empty when unset.
func (i Isolation) String() string { return isolationWords.text(uint8(i)) }

// MarshalText is the protocol's word.
func (i Isolation) MarshalText() ([]byte, error) { return isolationWords.marshal(uint8(i)) }

// UnmarshalText takes the protocol's word; empty means unset.
func (i *Isolation) UnmarshalText(text []byte) error { return take(&isolationWords, text, i) }

// take is UnmarshalText of every enumeration: the value changes only when the
// word exists.
func take[W ~uint8](w *words, text []byte, value *W) error {
	found, err := w.unmarshal(text)
	if err != nil {
		return err
	}
	*value = W(found)
	return nil
}

// IsolationScope is how long a sandbox is shared: for a conversation, or for
// one call. The narrower scope is the greater value; zero is conversation.
type IsolationScope uint8

// The scopes, widest first.
const (
	// ScopeConversation: one sandbox for all calls of a conversation's agent.
	ScopeConversation IsolationScope = iota
	// ScopeCall: a sandbox of its own for each call, disposed of after it.
	ScopeCall
)

var scopeWords = words{"isolation scope", []string{"conversation", "call"}}

// String is the protocol's word.
func (s IsolationScope) String() string { return scopeWords.text(uint8(s)) }

// MarshalText is the protocol's word.
func (s IsolationScope) MarshalText() ([]byte, error) { return scopeWords.marshal(uint8(s)) }

// UnmarshalText takes the protocol's word.
func (s *IsolationScope) UnmarshalText(text []byte) error { return take(&scopeWords, text, s) }

// Cleanup is the ladder of what happens to a sandbox after a call. Rungs
// compare with <, weakest first.
type Cleanup uint8

// The rungs, weakest first. Unset is below all of them: as a floor it asks
// for nothing.
const (
	// CleanupUnset is no rung.
	CleanupUnset Cleanup = iota
	// CleanupReclaim ends what the call left running and empties the work folder:
	// [Reclaimer].
	CleanupReclaim
	// CleanupReset puts the sandbox back to its start: [Sandbox.Reset].
	CleanupReset
	// CleanupDispose makes it go away; the next call gets a new one.
	CleanupDispose
)

var cleanupWords = words{"cleanup", []string{"", "reclaim", "reset", "dispose"}}

// String is the protocol's word; empty when unset.
func (c Cleanup) String() string { return cleanupWords.text(uint8(c)) }

// MarshalText is the protocol's word.
func (c Cleanup) MarshalText() ([]byte, error) { return cleanupWords.marshal(uint8(c)) }

// UnmarshalText takes the protocol's word; empty means unset.
func (c *Cleanup) UnmarshalText(text []byte) error { return take(&cleanupWords, text, c) }

// OSFamily is the kind of operating system a program finds itself on.
type OSFamily uint8

// The families. Unset, in a spec, means that any will do.
const (
	// OSUnset is no family.
	OSUnset OSFamily = iota
	// OSPosix: paths with slashes, and POSIX calls.
	OSPosix
	// OSWindows: Windows.
	OSWindows
)

var osWords = words{"OS family", []string{"", "posix", "windows"}}

// String is the protocol's word; empty when unset.
func (f OSFamily) String() string { return osWords.text(uint8(f)) }

// MarshalText is the protocol's word.
func (f OSFamily) MarshalText() ([]byte, error) { return osWords.marshal(uint8(f)) }

// UnmarshalText takes the protocol's word; empty means unset.
func (f *OSFamily) UnmarshalText(text []byte) error { return take(&osWords, text, f) }
