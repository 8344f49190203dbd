package sandboxtest_test

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// onDispose has every disposal's arguments pass through a function.
func onDispose(change func(key sandbox.Key, options sandbox.DisposeOptions) (sandbox.Key, sandbox.DisposeOptions)) func(*broken) {
	return func(b *broken) {
		b.dispose = func(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
			key, options = change(key, options)
			return b.Backend.Dispose(ctx, key, options)
		}
	}
}

func disposalFaults() map[string]fault {
	return map[string]fault{
		"a disposal of nothing that fails": {
			fault: func(b *broken) {
				b.dispose = func(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
					if b.Registered() == 0 {
						return &sandbox.DisposalFailure{Detail: "no such sandbox"}
					}
					return b.Backend.Dispose(ctx, key, options)
				}
			},
			want: []string{
				"disposal/disposing of what is not there is no error",
				"disposal/the same instance can be disposed of twice",
				"disposal/a disposal that fails says why, and the sandbox stays registered until one succeeds",
				"close/closing again is no error, nor is disposing afterwards",
			},
		},
		"a disposal that does nothing": {
			hangs: true,
			fault: func(b *broken) {
				b.dispose = func(context.Context, sandbox.Key, sandbox.DisposeOptions) error { return nil }
			},
			want: []string{
				"disposal/the same instance can be disposed of twice",
				"disposal/a disposed sandbox says that it is lost",
				"disposal/after a disposal acquire gives a fresh sandbox under a new id",
			},
			wide: true,
		},
		"a disposal that ignores the id": {
			fault: onDispose(func(key sandbox.Key, options sandbox.DisposeOptions) (sandbox.Key, sandbox.DisposeOptions) {
				options.InstanceID = ""
				return key, options
			}),
			want: []string{
				"disposal/the id of a replaced sandbox disposes of nothing",
				"disposal/the id from before a reset disposes of nothing",
				"disposal/disposing of one instance spares the other kinds",
			},
		},
		"a disposal that ignores the kind": {
			fault: onDispose(func(key sandbox.Key, options sandbox.DisposeOptions) (sandbox.Key, sandbox.DisposeOptions) {
				options.Kind = ""
				return key, options
			}),
			want: []string{"disposal/disposing of one kind spares the others"},
		},
		"a disposal of one kind when all are meant": {
			fault: onDispose(func(key sandbox.Key, options sandbox.DisposeOptions) (sandbox.Key, sandbox.DisposeOptions) {
				if options.Kind == "" && options.InstanceID == "" {
					options.Kind = "conformance"
				}
				return key, options
			}),
			want: []string{"disposal/disposing of a key takes all its kinds"},
		},
		"a disposal of the whole conversation": {
			fault: func(b *broken) {
				b.dispose = func(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
					if options != (sandbox.DisposeOptions{}) {
						return b.Backend.Dispose(ctx, key, options)
					}
					return b.Backend.DisposeScope(ctx, key.Scope, key.ThreadID).Err()
				}
			},
			want: []string{"disposal/disposing of a key spares every other key"},
		},
		"a disposal whose failure is an ordinary error": {
			fault: func(b *broken) {
				b.dispose = func(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
					if err := b.Backend.Dispose(ctx, key, options); err != nil {
						return errors.New(err.Error())
					}
					return nil
				}
			},
			want: []string{"disposal/a disposal that fails says why, and the sandbox stays registered until one succeeds"},
		},
		"a disposal that hides its failure": {
			fault: func(b *broken) {
				b.dispose = func(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
					_ = b.Backend.Dispose(ctx, key, options)
					return nil
				}
			},
			want: []string{
				"disposal/a disposal that fails says why, and the sandbox stays registered until one succeeds",
				"disposal/a sandbox whose disposal failed is never given out again",
			},
		},
		"a sandbox that comes back when it was disposed of": {
			fault: func(b *broken) {
				b.sandbox = func(s *brokenSandbox) { s.run = b.revive(s) }
			},
			want: []string{
				"disposal/a disposed sandbox says that it is lost",
				"disposal/a sandbox whose disposal failed is never given out again",
				"scope purge/a purged sandbox says that it is lost",
			},
		},
		"a purge that forgets the other agents": {
			fault: func(b *broken) {
				b.purge = func(ctx context.Context, scope, threadID string) sandbox.ScopePurge {
					before := b.Registered()
					err := b.Backend.Dispose(ctx, sandbox.Key{Scope: scope, ThreadID: threadID, AgentID: "agent"}, sandbox.DisposeOptions{})
					return sandbox.ScopePurge{Disposed: before - b.Registered(), Undisposed: sandbox.AsDisposalFailure(err)}
				}
			},
			want: []string{
				"scope purge/a purge takes all agents, kinds and calls of the conversation and counts them",
				"scope purge/a purge that fails says why and can be repeated",
				"concurrency/sandboxes at work at the same time do not mix",
			},
		},
		"a purge of all threads": {
			fault: func(b *broken) {
				b.purge = func(ctx context.Context, scope, threadID string) sandbox.ScopePurge {
					if threadID == "thread" {
						_ = b.Backend.DisposeScope(ctx, scope, "thread-2")
					}
					return b.Backend.DisposeScope(ctx, scope, threadID)
				}
			},
			want: []string{"scope purge/a purge spares other threads and other scopes"},
		},
		"a purge that does not count": {
			fault: func(b *broken) {
				b.purge = func(ctx context.Context, scope, threadID string) sandbox.ScopePurge {
					purge := b.Backend.DisposeScope(ctx, scope, threadID)
					purge.Disposed = min(purge.Disposed, 1)
					return purge
				}
			},
			want: []string{
				"acquire/another kind is another sandbox of the same key",
				"scope purge/a purge takes all agents, kinds and calls of the conversation and counts them",
				"scope purge/a purge that fails says why and can be repeated",
				"concurrency/sandboxes at work at the same time do not mix",
			},
		},
		"a purge of the backend's own sandboxes only": {
			fault: func(b *broken) {
				b.purge = func(ctx context.Context, scope, threadID string) sandbox.ScopePurge {
					if b.Count(sandboxtest.OpAcquire) == 0 {
						return sandbox.ScopePurge{}
					}
					return b.Backend.DisposeScope(ctx, scope, threadID)
				}
			},
			want: []string{"scope purge/a purge reaches sandboxes that another backend value made"},
		},
		"a purge that counts what is not there": {
			fault: func(b *broken) {
				b.purge = func(ctx context.Context, scope, threadID string) sandbox.ScopePurge {
					purge := b.Backend.DisposeScope(ctx, scope, threadID)
					purge.Disposed = max(purge.Disposed, 1)
					return purge
				}
			},
			want: []string{"scope purge/purging where nothing is finds nothing"},
			wide: true,
		},
		"a failed disposal that is forgotten": {
			fault: func(b *broken) {
				b.dispose = func(ctx context.Context, key sandbox.Key, options sandbox.DisposeOptions) error {
					err := b.Backend.Dispose(ctx, key, options)
					if err != nil {
						b.Script(sandboxtest.OpDispose, sandboxtest.Step{})
						_ = b.Backend.Dispose(ctx, key, options)
					}
					return err
				}
			},
			want: []string{"disposal/a disposal that fails says why, and the sandbox stays registered until one succeeds"},
		},
		"a purge that hides its failure": {
			fault: func(b *broken) {
				b.purge = func(ctx context.Context, scope, threadID string) sandbox.ScopePurge {
					return sandbox.ScopePurge{Disposed: b.Backend.DisposeScope(ctx, scope, threadID).Disposed}
				}
			},
			want: []string{"scope purge/a purge that fails says why and can be repeated"},
		},
		"a close that does nothing": {
			hangs: true,
			fault: func(b *broken) { b.close = func() error { return nil } },
			want: []string{
				"close/closing disposes of the backend's sandboxes",
				"close/a closed backend acquires nothing and says why",
				"close/closing that cannot dispose of everything says so and can be repeated",
				"close/closing ends a running program",
				"concurrency/closing in the middle of acquires leaves no sandbox behind",
			},
		},
		"a close that cannot be repeated": {
			fault: func(b *broken) {
				var closed atomic.Bool
				b.close = func() error {
					if closed.Swap(true) {
						return errors.New("already closed")
					}
					return b.Backend.Close()
				}
			},
			want: []string{
				"close/closing again is no error, nor is disposing afterwards",
				"close/closing that cannot dispose of everything says so and can be repeated",
			},
		},
		"a close that takes what is not its own": {
			fault: func(b *broken) {
				b.close = func() error {
					_ = b.Backend.DisposeScope(context.Background(), "tenant", "thread")
					return b.Backend.Close()
				}
			},
			want: []string{"close/closing spares the sandboxes of another backend value"},
		},
		"a close that hides its failure": {
			fault: func(b *broken) { b.close = func() error { _ = b.Backend.Close(); return nil } },
			want:  []string{"close/closing that cannot dispose of everything says so and can be repeated"},
		},
	}
}

func refusalFaults() map[string]fault {
	return map[string]fault{
		"a refusal without words": {
			fault: func(b *broken) {
				b.acquire = func(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
					s, err := b.Backend.Acquire(ctx, key, spec)
					var refusal *sandbox.RefusalError
					if errors.As(err, &refusal) && errors.Is(err, sandbox.ErrOSFamilyNotSupported) {
						err = &sandbox.RefusalError{Reason: refusal.Reason}
					}
					return s, err
				}
			},
			want: []string{"refusals/an OS family that is not declared is refused"},
		},
		"a blank key that is served": {
			fault: onAcquire(func(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (context.Context, sandbox.Key, sandbox.Spec) {
				if key.Scope == "" {
					key.Scope = "default"
				}
				return ctx, key, spec
			}),
			want: []string{"refusals/a key with a blank part is refused"},
		},
		"only the first problem": {
			fault: func(b *broken) {
				b.acquire = func(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (sandbox.Sandbox, error) {
					s, err := b.Backend.Acquire(ctx, key, spec)
					var first *sandbox.RefusalError
					if errors.As(err, &first) {
						err = first
					}
					return s, err
				}
			},
			want: []string{"refusals/a spec that is wrong in itself is refused with every problem"},
		},
		"capabilities that are promised and missing": {
			fault: onSpec(func(spec *sandbox.Spec) {
				if !spec.Requires.Has(sandbox.CapReclaim) && spec.HostTools == nil {
					spec.Requires = sandbox.Capabilities{}
				}
			}),
			want: []string{
				"refusals/a capability that is not declared is refused",
				"refusals/what the backend says that it refuses is refused/refuses a file capability",
			},
		},
		"egress that is weakened": {
			fault: onSpec(func(spec *sandbox.Spec) {
				if spec.Egress == sandbox.EgressUnrestricted {
					spec.Egress = sandbox.EgressClosed
				}
			}),
			want: []string{"refusals/an egress mode that is not declared is refused"},
		},
		"an OS family that is not looked at": {
			fault: onSpec(func(spec *sandbox.Spec) { spec.RequiresOSFamily = sandbox.OSUnset }),
			want:  []string{"refusals/an OS family that is not declared is refused"},
		},
		"transfer limits that are not looked at": {
			fault: onSpec(func(spec *sandbox.Spec) { spec.Limits = sandbox.Limits{} }),
			want:  []string{"refusals/wider transfers than declared are refused"},
		},
		"an isolation scope that is not looked at": {
			fault: func(b *broken) {
				b.declarations = func() sandbox.Declarations {
					d := b.Backend.Declarations()
					d.IsolationScopes = sandbox.SetOf(sandbox.ScopeConversation)
					return d
				}
			},
			want: []string{"refusals/an isolation scope that is not declared is refused"},
		},
		"a contract that is not looked at": {
			fault: onSpec(func(spec *sandbox.Spec) { spec.ExecutionContract = "" }),
			want:  []string{"refusals/a live sandbox is never used under another execution contract"},
		},
		"a network policy that changes in silence": {
			fault: onSpec(func(spec *sandbox.Spec) {
				if spec.Egress == sandbox.EgressAllowlist {
					spec.Egress, spec.EgressAllow = sandbox.EgressClosed, nil
				}
			}),
			want: []string{"refusals/a live sandbox is never used under another network policy"},
		},
	}
}

func onSpec(change func(spec *sandbox.Spec)) func(*broken) {
	return onAcquire(func(ctx context.Context, key sandbox.Key, spec sandbox.Spec) (context.Context, sandbox.Key, sandbox.Spec) {
		change(&spec)
		return ctx, key, spec
	})
}
