// Package hosttool has the tools of a host answer what a program asks.
//
// A call is the size of the tool's name, 32 bits in little endian, the name, and
// the arguments, a JSON object (guest/_maf_tools.py). An answer is one byte and
// what it announces: '+' and the result in JSON, or '-' and why there is none.
package hosttool

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"github.com/maf-sandbox/maf-sandbox-go/internal/strictjson"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Name is under what a program asks for a tool.
const Name = "tool"

// Bounds of the calls that go on in the host though nobody waits for them: tools
// that do not end with their context.
const (
	// MaxLeftBehind is for one sandbox, MaxLeftBehindTotal for a backend.
	MaxLeftBehind      = 16
	MaxLeftBehindTotal = 256
)

// Calls counts calls that go on though nobody waits for them.
type Calls struct {
	parent *Calls
	limit  int64
	left   atomic.Int64
}

// NewCalls counts for a backend.
func NewCalls() *Calls { return &Calls{limit: MaxLeftBehindTotal} }

// Part counts for one sandbox of the backend.
func (c *Calls) Part() *Calls { return &Calls{parent: c, limit: MaxLeftBehind} }

// Left is how many there are.
func (c *Calls) Left() int64 { return c.left.Load() }

func (c *Calls) add(n int64) {
	for ; c != nil; c = c.parent {
		c.left.Add(n)
	}
}

// full is how many calls are too many, or zero.
func (c *Calls) full() int64 {
	for ; c != nil; c = c.parent {
		if n := c.left.Load(); n >= c.limit {
			return n
		}
	}
	return 0
}

// Set is the tools of one sandbox.
type Set struct {
	names  []string
	byName map[string]*sandbox.Tool
	limit  map[string]int64
	calls  int
	left   *Calls
	log    *slog.Logger
}

// NewSet is the tools, with where their calls are counted and who hears of
// panics.
func NewSet(h *sandbox.HostTools, left *Calls, log *slog.Logger) *Set {
	s := &Set{byName: map[string]*sandbox.Tool{}, limit: h.ResponseLimits, calls: h.MaxCallsPerRun, left: left, log: log}
	tools := h.Tools()
	for i := range tools {
		s.names = append(s.names, tools[i].Name)
		s.byName[tools[i].Name] = &tools[i]
	}
	return s
}

// run is one run of a program that may call the tools.
type run struct {
	set    *Set
	caller sandbox.ToolCaller
	calls  atomic.Int64
}

type runKey struct{}

// Context is what the asks of one run are served in.
func (s *Set) Context(ctx context.Context, caller sandbox.ToolCaller) context.Context {
	return context.WithValue(sandbox.WithToolCaller(ctx, caller), runKey{}, &run{set: s, caller: caller})
}

// Serve answers a program's call. It returns when the context ends, also while
// the tool goes on. offered is false when the run has no tools.
func Serve(ctx context.Context, request []byte) (answer []byte, offered bool) {
	r, ok := ctx.Value(runKey{}).(*run)
	if !ok {
		return nil, false
	}
	answer, err := r.serve(ctx, request)
	if err != nil {
		return failure(err), true
	}
	return answer, true
}

// Request is a call as Serve takes it.
func Request(name string, arguments json.RawMessage) []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(name)+len(arguments)), uint32(len(name))) //nolint:gosec // a name of 4 GiB is cut, and then none
	return append(append(b, name...), arguments...)
}

// Result reads an answer. The error is why there is no result.
func Result(answer []byte) (json.RawMessage, error) {
	if len(answer) == 0 || answer[0] != '+' && answer[0] != '-' {
		return nil, errMalformed
	}
	if answer[0] == '-' {
		return nil, errors.New(string(answer[1:]))
	}
	return answer[1:], nil
}

// failure is an answer without a result.
func failure(err error) []byte {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) > sandbox.MaxToolFailure {
		const end = "..."
		text = strings.ToValidUTF8(text[:sandbox.MaxToolFailure-len(end)], "") + end
	}
	return append([]byte{'-'}, text...)
}

var (
	errMalformed = errors.New("the call is malformed")
	errPanic     = errors.New("the tool failed in the host")
	errOver      = errors.New("the run in which the tool was called is over")
)

func (r *run) serve(ctx context.Context, request []byte) ([]byte, error) {
	name, arguments, err := parse(request)
	if err != nil {
		return nil, err
	}
	t := r.set.byName[name]
	if t == nil {
		return nil, r.set.unknown(name)
	}
	if n := r.calls.Add(1); r.set.calls > 0 && n > int64(r.set.calls) {
		return nil, fmt.Errorf("a run may make %d calls of tools", r.set.calls)
	}
	if n := r.set.left.full(); n > 0 {
		return nil, fmt.Errorf("%d earlier calls of tools have not ended in the host yet", n)
	}
	result, err := r.call(ctx, t, arguments)
	if err != nil {
		return nil, err
	}
	return r.set.encode(t, result)
}

// parse reads a call; arguments lie in the request.
func parse(request []byte) (name string, arguments json.RawMessage, err error) {
	const head = 4
	if len(request) < head {
		return "", nil, errMalformed
	}
	size := int64(binary.LittleEndian.Uint32(request))
	if size > int64(len(request)-head) {
		return "", nil, errMalformed
	}
	name, arguments = string(request[head:head+size]), request[head+size:]
	facts, err := strictjson.Check(arguments, strictjson.Bounds{
		Bytes: sandbox.MaxToolArguments, Depth: sandbox.MaxToolDepth, Values: sandbox.MaxToolValues, Digits: sandbox.MaxToolDigits,
	})
	if err != nil {
		return "", nil, fmt.Errorf("the arguments: %w", err)
	}
	if facts.Kind != '{' {
		return "", nil, errMalformed
	}
	return name, arguments, nil
}

// maxListed bounds the names in an answer to a name that is none, in bytes.
const maxListed = 1000

// unknown says that there is no such tool, and which there are.
func (s *Set) unknown(name string) error {
	if len(s.names) == 0 {
		return errors.New("this sandbox offers no tools of the host")
	}
	var listed strings.Builder
	for i, known := range s.names {
		if i > 0 {
			listed.WriteString(", ")
		}
		if listed.Len()+len(known) > maxListed {
			listed.WriteString("...")
			break
		}
		listed.WriteString(known)
	}
	return fmt.Errorf("there is no tool %.100q; there are: %s", strings.ToValidUTF8(name, "\uFFFD"), listed.String())
}

type outcome struct {
	result any
	err    error
}

// call has the tool work until the context ends; what it makes of it later is
// dropped.
func (r *run) call(ctx context.Context, t *sandbox.Tool, arguments json.RawMessage) (any, error) {
	done := make(chan outcome, 1)
	var waits atomic.Bool
	waits.Store(true)
	go func() {
		o := outcome{err: errPanic}
		defer func() {
			done <- o
			if !waits.CompareAndSwap(true, false) {
				r.set.left.add(-1)
			}
		}()
		defer r.rescue(t, &o)
		result, err := t.Call(ctx, arguments)
		if err != nil {
			err = errors.New(err.Error()) // here, where its mistakes are caught too
		}
		o = outcome{result, err}
	}()
	select {
	case o := <-done:
		return o.result, o.err
	case <-ctx.Done():
	}
	r.set.left.add(1)
	if !waits.CompareAndSwap(true, false) {
		r.set.left.add(-1) // it has ended just now
	}
	return nil, errOver
}

// rescue keeps the panic of a tool from ending the host. Also one that has ended
// its goroutine has given no outcome.
func (r *run) rescue(t *sandbox.Tool, o *outcome) {
	if p := recover(); p != nil || errors.Is(o.err, errPanic) {
		r.set.log.Error("a tool of the host has panicked", "tool", t.Name, "key", r.caller.Key.String(), "kind", r.caller.Kind,
			"id", r.caller.InstanceID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

// encode is the answer with a result. What the host's own function gives is
// checked like anybody's: JSON that readers understand in two ways would end in
// the program as something else.
func (s *Set) encode(t *sandbox.Tool, result any) ([]byte, error) {
	text, err := marshal(result)
	if err != nil {
		return nil, err
	}
	limit := int64(sandbox.MaxToolResult)
	if l := s.limit[t.Name]; l > 0 {
		limit = min(limit, l)
	}
	facts, err := strictjson.Check(text, strictjson.Bounds{
		Bytes: int(limit), Depth: sandbox.MaxToolDepth, Values: sandbox.MaxToolValues, Digits: sandbox.MaxToolDigits,
	})
	if err != nil {
		return nil, fmt.Errorf("the result: %w", err)
	}
	answer := make([]byte, 0, 1+len(text)+2*len(facts.NegativeZeros))
	answer = append(answer, '+')
	at := 0
	for _, zero := range facts.NegativeZeros {
		// Go writes a float's zero with a sign so, and Python reads an int.
		end := zero + len("-0")
		answer = append(append(answer, text[at:end]...), ".0"...)
		at = end
	}
	return append(answer, bytes.TrimRight(text[at:], " \t\r\n")...), nil
}

// marshal is the result in JSON. Encoders of the host's types can panic, too.
func marshal(result any) (text []byte, err error) {
	if raw, ok := result.(json.RawMessage); ok && raw != nil {
		return bytes.TrimLeft(raw, " \t\r\n"), nil
	}
	defer func() {
		if p := recover(); p != nil {
			text, err = nil, errors.New("the result: it cannot be encoded as JSON")
		}
	}()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(result); err != nil {
		return nil, fmt.Errorf("the result: %w", err)
	}
	return b.Bytes(), nil
}
