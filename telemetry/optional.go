package telemetry

import (
	"context"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// What only some sandboxes can do, each in a type of its own, so that decorate
// gives a sandbox exactly those that it has: a router finds out that a sandbox
// lacks what its backend declares by asking for the interface.

//go:generate go test -run TestTheDecoratorsAreUpToDate -update .

type (
	executor    struct{ of *box }
	fileWriter  struct{ of *box }
	fileReader  struct{ of *box }
	fileLister  struct{ of *box }
	fileRemover struct{ of *box }
	reclaimer   struct{ of *box }
)

// The bits of a sandbox's optional interfaces; decorators_gen.go has a case for each sum.
const (
	hasExecutor = 1 << iota
	hasFileWriter
	hasFileReader
	hasFileLister
	hasFileRemover
	hasReclaimer
)

func optional(s sandbox.Sandbox) (bits int) {
	if _, ok := s.(sandbox.Executor); ok {
		bits |= hasExecutor
	}
	if _, ok := s.(sandbox.FileWriter); ok {
		bits |= hasFileWriter
	}
	if _, ok := s.(sandbox.FileReader); ok {
		bits |= hasFileReader
	}
	if _, ok := s.(sandbox.FileLister); ok {
		bits |= hasFileLister
	}
	if _, ok := s.(sandbox.FileRemover); ok {
		bits |= hasFileRemover
	}
	if _, ok := s.(sandbox.Reclaimer); ok {
		bits |= hasReclaimer
	}
	return bits
}

func (e executor) Exec(ctx context.Context, argv []string, dir string, timeout time.Duration) (sandbox.ExecResult, error) {
	ctx, r := e.of.begin(ctx, opExec)
	if r.recording() {
		r.set(keyTimeout.Float64(orDefault(timeout).Seconds()))
	}
	number := e.of.enter(r.span)
	result, err := e.of.inner.(sandbox.Executor).Exec(ctx, argv, dir, timeout)
	e.of.leave(number)
	e.of.ran(ctx, &r, result, err)
	return result, err
}

func (w fileWriter) WriteFile(ctx context.Context, path string, data []byte) error {
	ctx, r := w.of.begin(ctx, opWriteFile)
	if r.recording() {
		r.set(keyFile.Int(len(data)))
	}
	err := w.of.inner.(sandbox.FileWriter).WriteFile(ctx, path, data)
	w.of.end(ctx, &r, outcomeOK, err)
	return err
}

func (f fileReader) Stat(ctx context.Context, path string) (sandbox.Entry, error) {
	ctx, r := f.of.begin(ctx, opStat)
	entry, err := f.of.inner.(sandbox.FileReader).Stat(ctx, path)
	f.of.end(ctx, &r, outcomeOK, err)
	return entry, err
}

func (f fileReader) ReadFile(ctx context.Context, path string, maxBytes int64) ([]byte, error) {
	ctx, r := f.of.begin(ctx, opReadFile)
	data, err := f.of.inner.(sandbox.FileReader).ReadFile(ctx, path, maxBytes)
	if r.recording() {
		r.set(keyFile.Int(len(data)))
	}
	f.of.end(ctx, &r, outcomeOK, err)
	return data, err
}

func (l fileLister) List(ctx context.Context, dir string) ([]sandbox.Entry, error) {
	ctx, r := l.of.begin(ctx, opList)
	entries, err := l.of.inner.(sandbox.FileLister).List(ctx, dir)
	if r.recording() {
		r.set(keyEntries.Int(len(entries)))
	}
	l.of.end(ctx, &r, outcomeOK, err)
	return entries, err
}

func (f fileRemover) Remove(ctx context.Context, path string) error {
	ctx, r := f.of.begin(ctx, opRemove)
	err := f.of.inner.(sandbox.FileRemover).Remove(ctx, path)
	f.of.end(ctx, &r, outcomeOK, err)
	return err
}

func (f fileRemover) RemoveAll(ctx context.Context, path string) error {
	ctx, r := f.of.begin(ctx, opRemoveAll)
	err := f.of.inner.(sandbox.FileRemover).RemoveAll(ctx, path)
	f.of.end(ctx, &r, outcomeOK, err)
	return err
}

func (c reclaimer) Reclaim(ctx context.Context) error {
	ctx, r := c.of.begin(ctx, opReclaim)
	err := c.of.inner.(sandbox.Reclaimer).Reclaim(ctx)
	c.of.end(ctx, &r, outcomeOK, err)
	return err
}
