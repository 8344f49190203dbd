// Package sandbox has the words that hosts, routers and backends speak with
// each other: who a sandbox is for ([Key]), what it must offer ([Spec]), how
// strongly it is isolated ([Isolation]), what it may reach ([Egress]), what a
// program left behind ([ExecResult]), and what a [Backend] and a [Sandbox] do.
//
// It decides nothing and starts nothing. Values are plain structs with useful
// zero values; Validate reports every problem at once, and backends and the
// router call it before anything else. Text forms (String, MarshalText and
// UnmarshalText) are the words of the protocol's wire and configuration files.
//
// # Errors
//
// A refusal is a [RefusalError]: it says what was asked, what is allowed and
// who decides, and nothing was started. An accident or a limit is an
// [OpError]: it says which operation met it and whether the sandbox can still
// be used. Both answer errors.Is for the Err variables of this package;
// [Usable] answers for any error.
package sandbox
