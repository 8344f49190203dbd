// Package supervise keeps the worker processes of a host: a supervisor process
// starts them, keeps a few spare ones ready, ends them, and outlives the host
// for as long as it takes until the kernel has confirmed that none is left.
//
//	host ── control socket ──> supervisor ── starts, watches, kills ──> worker
//	  └──────────────── socket of the worker ────────────────────────────┘
//
// The host's side is Supervisor and Worker; the supervisor is a helper process
// (package helper) of the name Role. The control socket carries one CBOR message
// per packet. With a worker the host is sent the socket that leads to it and a
// pidfd; the supervisor keeps no copy of the socket, so that a worker notices
// when its host is gone. Spare workers are sent in advance and wait in the host:
// taking one needs no message.
//
// Who dies and what follows:
//
//   - The worker: its supervisor tells the host how, and removes what is left.
//   - The host: the supervisor (by a pidfd, and by the end of the control
//     socket) kills all workers, tries until each is confirmed gone, and only
//     then ends, which gives up the owner's lock.
//   - The supervisor: the kernel kills its workers (PR_SET_PDEATHSIG); the host
//     notices, kills those that it was given by their pidfds, spare ones too, and
//     confirms it. Control groups that are left are swept by the next supervisor,
//     a scope of systemd's by systemd.
//   - Host and supervisor: workers find their connection closed, and are killed
//     by the kernel.
//
// Each worker is bounded by one of the enforcements of Limits; there is no way
// to have none. A supervisor that cannot set up its enforcement refuses each
// call with the reason and with what mends it, and tries again with the next.
package supervise
