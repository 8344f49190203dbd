// Package telemetry makes traces and metrics, in the terms of OpenTelemetry, of
// what sandboxes do. It uses OpenTelemetry's API alone: as long as the host sets
// no provider nothing is recorded, and a call costs less than a microsecond more.
//
//	i := telemetry.New(telemetry.Config{})
//	backend := i.Backend(vm)                       // spans and durations of operations
//	r, err := router.New(router.Config{
//		Backends: []sandbox.Backend{backend},
//		Observer: i.Observer(nil),                 // refusals, admissions, cleanups
//	})
//	tool, err := codeact.NewTool(i.Calls(r), ...)  // one span round each call
//
// The three parts are independent. What a decorated value could do beyond its
// interface, such as routers and monitors ask for, the decorator can do as well.
//
// # Spans
//
// All are of kind internal and follow the context, so that a call of the tool is
//
//	sandbox.call
//	├── sandbox.acquire
//	├── sandbox.reset         only when a sandbox must be made clean first
//	├── sandbox.run
//	│   ├── sandbox.tool      each call of a tool of the host
//	│   └── sandbox.egress    each attempt to reach a host
//	└── sandbox.reset         the cleanup; or sandbox.reclaim, or sandbox.dispose
//
// with, elsewhere, sandbox.exec, sandbox.file.* and sandbox.dispose_scope, and
// sandbox.close without a parent.
//
// # Metrics
//
//	sandbox.operation.duration   histogram, s   operation, outcome, error.type, kind, backend; of tools their name
//	sandbox.admission.wait       histogram, s   kind, backend, exclusive
//	sandbox.count                up-down        state, kind, backend
//	sandbox.acquisitions         counter        adoption, kind, backend
//	sandbox.refusals             counter        error.type, kind, backend
//	sandbox.cleanups             counter        rung, outcome, error.type, kind, backend
//	sandbox.egress.decisions     counter        allowed, reason, kind, backend
//
// Each has few series: no attribute of a metric names a caller, a sandbox or a
// host.
//
// # What is never recorded
//
// No text of a program: not its source, its output, its exceptions, its paths, its
// command lines, nor what a worker says of them. An error is its class in one word
// ([sandbox.ErrorType]). A host's name is recorded only if the spec lists it,
// otherwise the reason of the refusal alone. Who a sandbox is for is recorded only
// with Config.Identities. What a program decides are numbers and choices: sizes, an
// exit status, durations, reasons, and which of the host's tools it calls.
package telemetry
