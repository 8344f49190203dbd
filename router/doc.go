// Package router is where agents meet backends: it decides whether a spec may
// be served and by which backend, keeps the calls of one sandbox apart, makes
// sure that a sandbox holds nothing of anybody else before it is handed out,
// and cleans up after every call.
//
//	host ── WithSandbox(key, spec, f) ── Router ── sandbox.Backend, ...
//
// # The order of things
//
// A call goes through these steps, in this order:
//
//   - Refusals, before anything is started: the key and the spec themselves; a
//     key whose earlier sandbox is not confirmed gone; what the host denies;
//     then, for each backend, attached identity, isolation floor, capabilities,
//     egress methods, OS family, transfer limits, egress mode, isolation scope;
//     and a key that does not fit the effective isolation scope. A refusal is a
//     [sandbox.RefusalError]: what was asked, what is allowed, who decides.
//   - Admission, in the order of arrival: calls of one key and kind share the
//     sandbox, unless one wants it alone or something has to be cleaned.
//   - Acquire: the backend gets or creates the sandbox. The key is checked
//     again, since a disposal may have failed meanwhile; then what the backend
//     gave, and the execution contract of a sandbox that is known.
//   - Adoption: a sandbox that this router did not hand out before is made
//     clean. One that vouches for itself (a [Voucher]: nothing of any caller has
//     reached this generation) is taken as it is; else it is reset; else, without a snapshot or after a reset that
//     failed, it is disposed of and another one is created. A sandbox that
//     belongs to a single call is not adopted: nobody else has its key.
//   - The call's own work.
//   - Cleanup, by the last of the calls inside, before the next one enters: the
//     weakest rung that the backend has and the floors of host and spec allow.
//     Reclaim and reset keep the sandbox, and are left out when it is still
//     fresh. A reclaim or reset that fails becomes the disposal of that
//     instance; a disposal that fails leaves the key unclean.
//
// # Unclean keys
//
// A key is refused with [sandbox.ErrUnclean] while a disposal of one of its
// instances has failed or was not confirmed in time, until that very disposal,
// or a wider one, succeeds: DisposeUnclean tries again, and Dispose,
// DisposeKind and DisposeScope count as well. Disposals of one key run one at a
// time. With [ReclaimKeep] a failed disposal refuses nothing.
//
// # Contexts
//
// A context bounds what its caller waits for. Who gives up in the queue leaves
// nothing; who gives up in a call ends its program, and the cleanup takes place
// all the same, with [ReclaimConfig.Timeout] for each step. No method leaves a
// goroutine behind.
//
// # What others can hook in
//
// An [Observer] is told about admissions, acquisitions, refusals, cleanups,
// disposals and, from an [EgressReporter], what programs reached for. A backend
// that is an [AdmissionWatcher] learns which of its sandboxes were let in; so a
// monitor wraps a backend, and any router makes its inventory right.
package router
