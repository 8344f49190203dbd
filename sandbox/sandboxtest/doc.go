// Package sandboxtest has what tests of sandboxes need: a [Backend] in memory
// that fails, waits and counts as a test tells it, and the conformance suite
// that every backend must pass.
//
// [RunConformance] takes a [Harness]: how to make a backend, and the programs
// that its sandboxes understand. Each rule of the protocol is a subtest whose
// name says the rule. Rules about a capability that the backend does not
// declare are skipped.
//
// Nothing here sleeps to wait for something. Time only bounds a hang, and
// programs that must overrun are given a short time on purpose.
package sandboxtest
