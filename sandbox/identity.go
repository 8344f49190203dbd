package sandbox

import "time"

// Identity is on whose behalf something outside the sandbox is done.
type Identity uint8

// The identities. Unset means none.
const (
	// IdentityUnset: nobody's.
	IdentityUnset Identity = iota
	// IdentityApp: the host program's own.
	IdentityApp
	// IdentityUser: that of the person for whom the agent works.
	IdentityUser
)

var identityWords = words{"identity", []string{"", "app", "user"}}

// String is the protocol's word; empty when unset.
func (i Identity) String() string { return identityWords.text(uint8(i)) }

// MarshalText is the protocol's word.
func (i Identity) MarshalText() ([]byte, error) { return identityWords.marshal(uint8(i)) }

// UnmarshalText takes the protocol's word; empty means unset.
func (i *Identity) UnmarshalText(text []byte) error { return take(&identityWords, text, i) }

// IdentityScope is the ladder of how widely an identity that a backend
// attaches to sandboxes is shared. Rungs compare with <; zero is none.
type IdentityScope uint8

// The scopes, narrowest first.
const (
	// IdentityNone: there is no identity.
	IdentityNone IdentityScope = iota
	// IdentityPerSandbox: each sandbox has its own.
	IdentityPerSandbox
	// IdentityPerScope: the sandboxes of a tenant ([Key.Scope]) share one.
	IdentityPerScope
	// IdentityShared: all sandboxes of the backend share one.
	IdentityShared
)

var identityScopeWords = words{"identity scope", []string{"none", "per_sandbox", "per_scope", "shared"}}

// String is the protocol's word.
func (s IdentityScope) String() string { return identityScopeWords.text(uint8(s)) }

// MarshalText is the protocol's word.
func (s IdentityScope) MarshalText() ([]byte, error) { return identityScopeWords.marshal(uint8(s)) }

// UnmarshalText takes the protocol's word.
func (s *IdentityScope) UnmarshalText(text []byte) error { return take(&identityScopeWords, text, s) }

// AuthorityChannel is the way by which an identity's authority reaches the
// outside.
type AuthorityChannel uint8

// ChannelEgressHeader adds a credential to the header of a request on its way
// out; the sandbox never sees it.
const ChannelEgressHeader AuthorityChannel = 0

var channelWords = words{"authority channel", []string{"egress_header"}}

// String is the protocol's word.
func (c AuthorityChannel) String() string { return channelWords.text(uint8(c)) }

// MarshalText is the protocol's word.
func (c AuthorityChannel) MarshalText() ([]byte, error) { return channelWords.marshal(uint8(c)) }

// UnmarshalText takes the protocol's word.
func (c *AuthorityChannel) UnmarshalText(text []byte) error { return take(&channelWords, text, c) }

// AttachedIdentity is what a backend says about the identity that its
// sandboxes carry. The zero value is none.
type AttachedIdentity struct {
	// Scope says who shares the identity.
	Scope IdentityScope
	// AutoDelete is how long the identity outlives its sandbox at most; zero
	// when the backend gives no bound.
	AutoDelete time.Duration
	// Channels are the ways by which its authority leaves the sandbox.
	Channels Set[AuthorityChannel]
}

// SourceIntegrity is how far a text may be trusted. Zero is untrusted.
type SourceIntegrity uint8

// The integrities, least first.
const (
	// Untrusted: anybody may have written it, to mislead a model as well.
	Untrusted SourceIntegrity = iota
	// Trusted: the host vouches for it.
	Trusted
)

var integrityWords = words{"source integrity", []string{"untrusted", "trusted"}}

// String is the protocol's word.
func (s SourceIntegrity) String() string { return integrityWords.text(uint8(s)) }

// MarshalText is the protocol's word.
func (s SourceIntegrity) MarshalText() ([]byte, error) { return integrityWords.marshal(uint8(s)) }

// UnmarshalText takes the protocol's word.
func (s *SourceIntegrity) UnmarshalText(text []byte) error { return take(&integrityWords, text, s) }

// SourceChannel is the way by which foreign data reaches a program.
type SourceChannel uint8

// The channels.
const (
	// SourceFileStore: files that the host puts into the sandbox.
	SourceFileStore SourceChannel = iota
	// SourceEgress: answers of hosts that the program reaches.
	SourceEgress
	// SourceHostTools: results of the host's tools.
	SourceHostTools
)

var sourceWords = words{"source channel", []string{"file_store", "egress", "host_tools"}}

// String is the protocol's word.
func (s SourceChannel) String() string { return sourceWords.text(uint8(s)) }

// MarshalText is the protocol's word.
func (s SourceChannel) MarshalText() ([]byte, error) { return sourceWords.marshal(uint8(s)) }

// UnmarshalText takes the protocol's word.
func (s *SourceChannel) UnmarshalText(text []byte) error { return take(&sourceWords, text, s) }
