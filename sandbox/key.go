package sandbox

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// MaxNameBytes bounds each part of a [Key], a spec's kind and its execution
// contract. Names come from the host's own context; the bound only keeps a
// mistake from becoming a memory problem.
const MaxNameBytes = 1024

// Key says for whom a sandbox is. All of it comes from the host's context and
// none of it from a model. Keys compare with ==.
type Key struct {
	// Scope is the tenant: whatever must never share a sandbox.
	Scope string `json:"scope"`
	// ThreadID is the conversation.
	ThreadID string `json:"thread_id"`
	// AgentID is the agent within the conversation.
	AgentID string `json:"agent_id"`
	// CallID is the tool call, when each call has a sandbox of its own; empty
	// when a conversation shares one.
	CallID string `json:"call_id,omitempty"`
}

// String is the key for logs and error texts: its parts, escaped as in a URL
// path so that two keys never look alike.
func (k Key) String() string {
	parts := []string{k.Scope, k.ThreadID, k.AgentID}
	if k.CallID != "" {
		parts = append(parts, k.CallID)
	}
	for i, part := range parts {
		parts[i] = url.PathEscape(cut(part))
	}
	return strings.Join(parts, "/")
}

// IsolationScope is call for a key with a call, else conversation.
func (k Key) IsolationScope() IsolationScope {
	if k.CallID != "" {
		return ScopeCall
	}
	return ScopeConversation
}

// Validate reports every part that cannot be used: scope, thread and agent
// must not be blank, since a blank name would be shared by all who forgot it.
// Problems are of type [*RefusalError] and match [ErrInvalid].
func (k Key) Validate() error {
	return errors.Join(
		checkName("key.scope", k.Scope, true),
		checkName("key.thread_id", k.ThreadID, true),
		checkName("key.agent_id", k.AgentID, true),
		checkName("key.call_id", k.CallID, false),
	)
}

// checkName refuses a name that is blank (when it is needed), too long, or no
// text.
func checkName(subject, name string, needed bool) error {
	switch {
	case name == "" && !needed:
		return nil
	case strings.TrimSpace(name) == "":
		return invalid(subject, fmt.Sprintf("%q", cut(name)), "a name that is not blank")
	case len(name) > MaxNameBytes:
		return invalid(subject, fmt.Sprintf("%d bytes", len(name)), fmt.Sprintf("up to %d bytes", MaxNameBytes))
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return invalid(subject, fmt.Sprintf("%q", cut(name)), "UTF-8 text without NUL")
	}
	return nil
}
