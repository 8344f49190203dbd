package sandbox

// Capability is something a sandbox can do beyond being acquired and disposed.
type Capability uint8

// The capabilities. Behind each stands the interface that a sandbox whose
// backend declares it implements.
const (
	// CapExec runs a command line: [Executor].
	CapExec Capability = iota
	// CapRunCode runs source text in a living interpreter: [Sandbox.RunCode].
	CapRunCode
	// CapHostTools lets the program call tools of the host.
	CapHostTools
	// CapFilesIn puts files into the sandbox: [FileWriter].
	CapFilesIn
	// CapFilesOut takes files out of the sandbox: [FileReader].
	CapFilesOut
	// CapFilesList lists folders of the sandbox: [FileLister].
	CapFilesList
	// CapFilesDelete removes files of the sandbox: [FileRemover].
	CapFilesDelete
	// CapSnapshot puts the sandbox back to its start: [Sandbox.Reset].
	CapSnapshot
	// CapAttachedIdentity gives the sandbox an identity of its own.
	CapAttachedIdentity
	// CapReclaim ends what a call left running: [Reclaimer]. A spec cannot
	// require it: cleanup is the host's matter.
	CapReclaim
	// CapEgressMethods narrows an egress rule to HTTP methods.
	CapEgressMethods
)

var capabilityWords = words{"capability", []string{
	"exec", "run_code", "host_tools", "files_in", "files_out", "files_list",
	"files_delete", "snapshot", "attached_identity", "reclaim", "egress_methods",
}}

// Capabilities is a set of capabilities; its zero value is none.
type Capabilities = Set[Capability]

// DefaultCapabilities are what [DefaultSpec] requires.
func DefaultCapabilities() Capabilities { return SetOf(CapExec, CapFilesIn) }

// String is the protocol's word.
func (c Capability) String() string { return capabilityWords.text(uint8(c)) }

// MarshalText is the protocol's word.
func (c Capability) MarshalText() ([]byte, error) { return capabilityWords.marshal(uint8(c)) }

// UnmarshalText takes the protocol's word.
func (c *Capability) UnmarshalText(text []byte) error { return take(&capabilityWords, text, c) }
