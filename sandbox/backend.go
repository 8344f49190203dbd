package sandbox

import (
	"context"
	"time"
)

// DefaultTimeout is the time of a run that names none.
const DefaultTimeout = 30 * time.Second

// Backend makes sandboxes and makes them go away. All methods may be called
// at the same time.
type Backend interface {
	// Name is the backend's name in configuration, errors and audit records.
	Name() string
	// Isolation is the rung that its sandboxes stand on.
	Isolation() Isolation
	// Declarations are what it offers; the same at every call.
	Declarations() Declarations

	// Acquire gets the live sandbox of the key and the spec's kind, or
	// creates it. A key or spec that cannot be served is a [RefusalError]; so
	// is a live sandbox whose network policy, execution contract or resources
	// differ ([ErrConfigurationChanged]). A sandbox that is lost is replaced,
	// under another id. The deadline of ctx counts the wait for a turn.
	Acquire(ctx context.Context, key Key, spec Spec) (Sandbox, error)

	// Dispose makes the sandboxes of the key that the options select go away
	// and waits for the confirmation. Nil means that they are gone, and also
	// that there were none. Everything else is a [*DisposalFailure]: the
	// sandbox cannot be used any more and stays registered, so that disposing
	// again tries again.
	Dispose(ctx context.Context, key Key, options DisposeOptions) error

	// DisposeScope disposes of every sandbox of a conversation: all agents,
	// kinds and calls, whoever acquired them.
	DisposeScope(ctx context.Context, scope, threadID string) ScopePurge

	// Close disposes of the sandboxes that this Backend value made and ends
	// its work; afterwards Acquire says [ErrClosed]. It returns an error when
	// a sandbox is not confirmed gone, and can be called again.
	Close() error
}

// Sandbox is a running sandbox. All methods may be called at the same time;
// operations take turns in the order in which they asked.
//
// Every error says by [Usable] whether the sandbox survived. One that did not
// answers everything with [ErrWorkerLost], and acquiring its key gives another.
type Sandbox interface {
	// ID names this generation of the sandbox. It stays the same over
	// acquires and runs and is new after a reset or a replacement; it is never
	// empty and never used twice.
	ID() string

	// RunCode runs source text in UTF-8. The timeout is wall-clock time
	// from the call, the wait for a turn included; zero means
	// DefaultTimeout, and less is refused. A deadline of ctx counts as well,
	// and the earlier one ends the run.
	//
	// A program that fails is no error: its traceback is in Stderr and its
	// exit code is not zero. Time that runs out in the queue is
	// [ErrQueuedTimeout]: nothing was submitted. Beside another error the
	// result may hold what was written until then.
	RunCode(ctx context.Context, code string, timeout time.Duration) (ExecResult, error)

	// Reset puts the sandbox back to its start and gives it a new ID. A reset
	// that fails has lost the sandbox, unless it never got its turn.
	Reset(ctx context.Context) error
}

// Executor is a sandbox with [CapExec].
type Executor interface {
	// Exec runs a command line in a working directory, or in the spec's when
	// dir is empty. The timeout counts as in RunCode.
	Exec(ctx context.Context, argv []string, dir string, timeout time.Duration) (ExecResult, error)
}

// FileWriter is a sandbox with [CapFilesIn].
type FileWriter interface {
	// WriteFile puts a file at an absolute path and makes the folders above.
	WriteFile(ctx context.Context, path string, data []byte) error
}

// FileReader is a sandbox with [CapFilesOut].
type FileReader interface {
	// Stat describes a path without following a link at its end.
	Stat(ctx context.Context, path string) (Entry, error)
	// ReadFile reads a file of at most maxBytes; a longer one is refused,
	// never cut.
	ReadFile(ctx context.Context, path string, maxBytes int64) ([]byte, error)
}

// FileLister is a sandbox with [CapFilesList].
type FileLister interface {
	// List describes what is in a folder, sorted by path.
	List(ctx context.Context, dir string) ([]Entry, error)
}

// FileRemover is a sandbox with [CapFilesDelete].
type FileRemover interface {
	// Remove removes a file, a link or an empty folder.
	Remove(ctx context.Context, path string) error
	// RemoveAll removes a path and everything below; a path that is not there
	// is no error.
	RemoveAll(ctx context.Context, path string) error
}

// FileStore is a sandbox with all four capabilities for files.
type FileStore interface {
	FileWriter
	FileReader
	FileLister
	FileRemover
}

// Reclaimer is a sandbox with [CapReclaim].
type Reclaimer interface {
	// Reclaim ends everything that earlier calls left running and removes
	// what they left in the work folder; the sandbox keeps its ID.
	Reclaim(ctx context.Context) error
}

// Missing are the capabilities of the set that the sandbox's type does not
// implement. A backend that declares one of them does not keep its word.
func Missing(s Sandbox, declared Capabilities) Capabilities {
	var missing Capabilities
	need := func(c Capability, implemented bool) {
		if declared.Has(c) && !implemented {
			missing = missing.With(c)
		}
	}
	_, ok := s.(Executor)
	need(CapExec, ok)
	_, ok = s.(FileWriter)
	need(CapFilesIn, ok)
	_, ok = s.(FileReader)
	need(CapFilesOut, ok)
	_, ok = s.(FileLister)
	need(CapFilesList, ok)
	_, ok = s.(FileRemover)
	need(CapFilesDelete, ok)
	_, ok = s.(Reclaimer)
	need(CapReclaim, ok)
	return missing
}
