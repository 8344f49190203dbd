package telemetry

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// The attributes. error.type, process.exit.code, server.address and server.port
// are OpenTelemetry's own (semantic conventions 1.37); there are none for
// sandboxes.
const (
	// On spans and metrics.
	keyBackend   = attribute.Key("sandbox.backend")
	keyKind      = attribute.Key("sandbox.kind")
	keyErrorType = attribute.Key("error.type")
	keyAllowed   = attribute.Key("sandbox.egress.allowed")
	keyReason    = attribute.Key("sandbox.egress.reason")
	keyTool      = attribute.Key("sandbox.tool.name") // of the host, as the host calls it

	// On spans.
	keyIsolation  = attribute.Key("sandbox.isolation")
	keyInstance   = attribute.Key("sandbox.instance.id")
	keyNext       = attribute.Key("sandbox.instance.id.next") // after a reset
	keyFresh      = attribute.Key("sandbox.fresh")
	keyUsable     = attribute.Key("sandbox.usable") // after an error
	keyEgress     = attribute.Key("sandbox.egress.mode")
	keyTimeout    = attribute.Key("sandbox.timeout") // seconds
	keyCode       = attribute.Key("sandbox.code.size")
	keyStdout     = attribute.Key("sandbox.stdout.size")
	keyStderr     = attribute.Key("sandbox.stderr.size")
	keyFile       = attribute.Key("sandbox.file.size")
	keyEntries    = attribute.Key("sandbox.file.entries")
	keyExitCode   = attribute.Key("process.exit.code")
	keyDisposed   = attribute.Key("sandbox.disposed.count")
	keyServer     = attribute.Key("server.address")
	keyServerPort = attribute.Key("server.port")

	// On spans, with Config.Identities.
	keyScope  = attribute.Key("sandbox.scope")
	keyThread = attribute.Key("sandbox.thread.id")
	keyAgent  = attribute.Key("sandbox.agent.id")
	keyCall   = attribute.Key("sandbox.call.id")

	// On metrics.
	keyOperation = attribute.Key("sandbox.operation")
	keyOutcome   = attribute.Key("sandbox.outcome")
	keyState     = attribute.Key("sandbox.state")
	keyAdoption  = attribute.Key("sandbox.adoption")
	keyRung      = attribute.Key("sandbox.cleanup")
	keyExclusive = attribute.Key("sandbox.exclusive")
)

// The words of keyOutcome.
const (
	outcomeOK = "ok"
	// outcomeProgram: the program ended by itself, and not well.
	outcomeProgram = "program_failed"
	// outcomeError has its error.type beside it.
	outcomeError = "error"
	// outcomeSkipped: there was nothing to clean.
	outcomeSkipped = "skipped"
)

// identities are for whom a sandbox is, if spans may say so.
func (i *Instrumentation) identity(key sandbox.Key) []attribute.KeyValue {
	if !i.identities {
		return nil
	}
	attributes := []attribute.KeyValue{keyScope.String(key.Scope), keyThread.String(key.ThreadID)}
	if key.AgentID != "" { // none in a purge
		attributes = append(attributes, keyAgent.String(key.AgentID))
	}
	if key.CallID != "" {
		attributes = append(attributes, keyCall.String(key.CallID))
	}
	return attributes
}

// reasonWords are the reasons of egress decisions that may be recorded: those of
// package microvm. A reason is a backend's free text, so that what is not here is
// sandbox.OtherError.
var reasonWords = [...]struct{ reason, word string }{
	{"allowed", "allowed"},
	{"undecided", "undecided"},
	{"URL too long", "url_too_long"},
	{"URL malformed", "url_malformed"},
	{"scheme not allowed", "scheme_not_allowed"},
	{"credentials in the URL", "credentials_in_url"},
	{"host malformed", "host_malformed"},
	{"port not allowed", "port_not_allowed"},
	{"method malformed", "method_malformed"},
	{"method never allowed", "method_never_allowed"},
	{"no network", "no_network"},
	{"host not listed", "host_not_listed"},
	{"method not listed", "method_not_listed"},
	{"policy", "policy"},
	{"name", "name_not_found"},
	{"lookup", "lookup_failed"},
	{"address", "address_refused"},
	{"connect", "connection_failed"},
	{"refused", "connection_refused"},
	{"tls", "tls_failed"},
	{"timeout", "timeout"},
	{"too_large", "too_large"},
	{"malformed", "malformed"},
	{"busy", "busy"},
	{"no_room", "no_room"},
}

func reasonWord(reason string) string {
	for _, known := range reasonWords {
		if known.reason == reason {
			return known.word
		}
	}
	return sandbox.OtherError
}
