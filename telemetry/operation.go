package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// op is an operation: the word in metrics, and its span's name.
type op struct{ word, span string }

var (
	opCall         = op{"call", "sandbox.call"}
	opAcquire      = op{"acquire", "sandbox.acquire"}
	opRun          = op{"run", "sandbox.run"}
	opExec         = op{"exec", "sandbox.exec"}
	opReset        = op{"reset", "sandbox.reset"}
	opReclaim      = op{"reclaim", "sandbox.reclaim"}
	opDispose      = op{"dispose", "sandbox.dispose"}
	opDisposeScope = op{"dispose_scope", "sandbox.dispose_scope"}
	opClose        = op{"close", "sandbox.close"}
	opWriteFile    = op{"write_file", "sandbox.file.write"}
	opReadFile     = op{"read_file", "sandbox.file.read"}
	opStat         = op{"stat", "sandbox.file.stat"}
	opList         = op{"list", "sandbox.file.list"}
	opRemove       = op{"remove", "sandbox.file.remove"}
	opRemoveAll    = op{"remove_all", "sandbox.file.remove_all"}
)

// labels are what is known of an operation before it begins. They are made once
// for a sandbox, so that an operation allocates nothing for them.
type labels struct {
	backend, kind string // empty when not known
	// start are the attributes of a span at its start, where samplers see them.
	start []trace.SpanStartOption
}

// maxKinds bounds how many labels are kept: backends have few kinds.
const maxKinds = 64

// kinds keeps the labels of the kinds of every backend. The zero value is ready.
type kinds struct {
	mu  sync.Mutex
	all map[kindOf]*labels
}

type kindOf struct {
	backend, kind string
	isolation     sandbox.Isolation
}

func (k *kinds) of(backend, kind string, isolation sandbox.Isolation) *labels {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := kindOf{backend, kind, isolation}
	if l, known := k.all[at]; known {
		return l
	}
	l := makeLabels(backend, kind, isolation)
	if k.all == nil {
		k.all = make(map[kindOf]*labels)
	}
	if len(k.all) < maxKinds {
		k.all[at] = l
	}
	return l
}

func makeLabels(backend, kind string, isolation sandbox.Isolation) *labels {
	l := &labels{backend: backend, kind: kind}
	attributes := l.attributes()
	if isolation != sandbox.IsolationUnset {
		attributes = append(attributes, keyIsolation.String(isolation.String()))
	}
	l.start = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(attributes...)}
	return l
}

// attributes are those that metrics have as well, with room for more.
func (l *labels) attributes() []attribute.KeyValue {
	attributes := make([]attribute.KeyValue, 0, 8)
	if l.backend != "" {
		attributes = append(attributes, keyBackend.String(l.backend))
	}
	if l.kind != "" {
		attributes = append(attributes, keyKind.String(l.kind))
	}
	return attributes
}

// running is an operation on its way.
type running struct {
	instrumentation *Instrumentation
	op              op
	labels          *labels
	span            trace.Span
	started         time.Time // zero when nobody measures
}

func (i *Instrumentation) begin(ctx context.Context, op op, l *labels) (context.Context, running) {
	r := running{instrumentation: i, op: op, labels: l}
	if i.duration.Enabled(ctx) {
		r.started = time.Now()
	}
	ctx, r.span = i.tracer.Start(ctx, op.span, l.start...)
	return ctx, r
}

// recording says whether attributes are worth their making.
func (r *running) recording() bool { return r.span.IsRecording() }

// set puts attributes on the span; call it only while recording.
func (r *running) set(attributes ...attribute.KeyValue) { r.span.SetAttributes(attributes...) }

// end ends the operation. The span has the class of the error and not its text,
// which may repeat what a program or a worker said.
func (r *running) end(ctx context.Context, err error) {
	outcome := outcomeOK
	if err != nil {
		outcome = outcomeError
	}
	r.endAs(ctx, outcome, err)
}

func (r *running) endAs(ctx context.Context, outcome string, err error) {
	if err != nil && r.recording() {
		word := sandbox.ErrorType(err)
		r.set(keyErrorType.String(word))
		r.span.SetStatus(codes.Error, word)
	}
	// Metrics before the end of the span: exemplars name a span that is recording.
	if !r.started.IsZero() {
		attributes := append(r.labels.attributes(), keyOperation.String(r.op.word), keyOutcome.String(outcome))
		if err != nil {
			attributes = append(attributes, keyErrorType.String(sandbox.ErrorType(err)))
		}
		r.instrumentation.duration.Record(ctx, time.Since(r.started).Seconds(), metric.WithAttributes(attributes...))
	}
	r.span.End()
}
