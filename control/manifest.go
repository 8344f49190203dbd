package control

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/control/internal/rundir"
	"github.com/maf-sandbox/maf-sandbox-go/control/internal/wirejson"
	"github.com/maf-sandbox/maf-sandbox-go/internal/pyjson"
)

// ErrUnsafeDirectory is the class of errors about a discovery folder that is
// not this user's alone.
var ErrUnsafeDirectory = rundir.ErrUnsafe

// RuntimeDirectory is the folder in which hosts announce themselves: what
// MAF_SANDBOX_TUI_RUNTIME_DIR names, else maf-sandbox-tui in XDG_RUNTIME_DIR,
// else a folder of this user in the folder of temporary files.
func RuntimeDirectory() string { return rundir.Default() }

// Manifest is how a host announces itself.
type Manifest struct {
	// SourceID is the host's name for itself.
	SourceID string
	// Endpoint is where it listens: "http://127.0.0.1:37313", always a literal
	// address of this machine's loopback.
	Endpoint string
	// ProcessID is the host's process; 0 when not known.
	ProcessID int
	// Socket is the path of a Unix socket that serves the same, for this user
	// only; empty when there is none. Peers in Python do not know it.
	Socket string
	// Announcement is the path of the file in which the host announces itself
	// and whose lock it keeps for as long as it lives, so that whoever has its
	// port afterwards is not taken for it. It is empty for hosts that keep no
	// lock, as peers in Python, and for those that an operator typed.
	Announcement string

	// zeroProcess says that an announcement names process 0 rather than none.
	zeroProcess bool
}

// namesProcess says whether an announcement names a process, as those of living
// hosts do and an endpoint that an operator typed does not.
func (m Manifest) namesProcess() bool { return m.ProcessID != 0 || m.zeroProcess }

// origin marks the announcements of this package, the only ones that it may
// clean up.
const origin = "go"

// marshal writes the manifest with the separators that Python uses by default,
// and then what Python does not know.
func (m Manifest) marshal() []byte {
	b := append([]byte(nil), `{"source_id": `...)
	b = pyjson.AppendString(b, m.SourceID)
	b = pyjson.AppendString(append(b, `, "endpoint": `...), m.Endpoint)
	b = strconv.AppendInt(append(b, `, "process_id": `...), int64(m.ProcessID), 10)
	b = strconv.AppendInt(append(b, `, "protocol_version": `...), ProtocolVersion, 10)
	b = pyjson.AppendString(append(b, `, "implementation": `...), origin)
	if m.Socket != "" {
		b = pyjson.AppendString(append(b, `, "unix_socket": `...), filepath.Base(m.Socket))
	}
	return append(b, '}')
}

// isOurs says whether an announcement was written by this package.
func isOurs(data []byte) bool {
	fields, err := wirejson.Parse(data)
	if err != nil {
		return false
	}
	implementation, err := fields.String("implementation")
	return err == nil && implementation == origin
}

// parseManifest reads a foreign announcement. The folder is where it lies: a
// socket can only be there.
func parseManifest(data []byte, folder string) (Manifest, error) {
	fields, err := wirejson.Parse(data)
	if err != nil {
		return Manifest{}, err
	}
	var m Manifest
	if m.SourceID, err = fields.String("source_id"); err != nil {
		return Manifest{}, err
	}
	if m.SourceID == "" || len(m.SourceID) > MaxTextBytes {
		return Manifest{}, &wirejson.FieldError{Field: "source_id", Want: wantSource}
	}
	if m.Endpoint, err = fields.String("endpoint"); err != nil {
		return Manifest{}, err
	}
	if _, err = parseEndpoint(m.Endpoint); err != nil {
		return Manifest{}, err
	}
	if m.ProcessID, err = fields.OptionalInt("process_id"); err != nil {
		return Manifest{}, err
	}
	m.zeroProcess = m.ProcessID == 0 && !fields.Missing("process_id")
	version, err := fields.Int("protocol_version")
	if err != nil {
		return Manifest{}, err
	}
	if version != ProtocolVersion {
		return Manifest{}, &wirejson.FieldError{Field: "protocol_version", Want: strconv.Itoa(ProtocolVersion)}
	}
	if name, err := fields.OptionalString("unix_socket"); err == nil && isSocketName(name) {
		m.Socket = filepath.Join(folder, name)
	}
	return m, nil
}

// isSocketName says whether a name is a plain file name for a socket.
func isSocketName(name string) bool {
	return strings.HasSuffix(name, rundir.SocketSuffix) && len(name) < 256 &&
		filepath.Base(name) == name && !strings.ContainsAny(name, "/\\\x00")
}

// EndpointError says why a text is no endpoint of the control protocol.
type EndpointError struct {
	// Endpoint is the text, bounded.
	Endpoint string
}

// Error says what an endpoint looks like.
func (e *EndpointError) Error() string {
	return fmt.Sprintf("control endpoint must be an HTTP loopback URL with a port, such as http://127.0.0.1:37313: got %q", e.Endpoint)
}

// Unwrap gives ErrInvalidMessage.
func (e *EndpointError) Unwrap() error { return ErrInvalidMessage }

// parseEndpoint gives the address of an endpoint. Names such as localhost are
// refused: what they mean can be changed.
func parseEndpoint(text string) (netip.AddrPort, error) {
	invalid := &EndpointError{wirejson.Cut(text, maxQuoted)}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Opaque != "" || u.User != nil || strings.ContainsAny(text, "?#") || (u.Path != "" && u.Path != "/") {
		return netip.AddrPort{}, invalid
	}
	address, err := netip.ParseAddr(u.Hostname())
	if err != nil || !address.IsLoopback() || address.Zone() != "" || address.Is4In6() {
		return netip.AddrPort{}, invalid
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 {
		return netip.AddrPort{}, invalid
	}
	return netip.AddrPortFrom(address, uint16(port)), nil
}
