package sandboxtest_test

import (
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox/sandboxtest"
)

// recorder is a test whose failures are looked at instead of reported.
type recorder struct {
	name   string
	parent *recorder

	mu       sync.Mutex
	failed   bool
	skipped  bool
	messages []string
	cleanups []func()
	subs     []*recorder
}

func (r *recorder) Helper()                        {}
func (r *recorder) Name() string                   { return r.name }
func (r *recorder) Logf(string, ...any)            {}
func (r *recorder) Cleanup(f func())               { r.mu.Lock(); r.cleanups = append(r.cleanups, f); r.mu.Unlock() }
func (r *recorder) Failed() bool                   { r.mu.Lock(); defer r.mu.Unlock(); return r.failed }
func (r *recorder) Fatalf(format string, a ...any) { r.Errorf(format, a...); runtime.Goexit() }
func (r *recorder) Skipf(string, ...any) {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Errorf(format string, args ...any) {
	for up := r; up != nil; up = up.parent {
		up.mu.Lock()
		up.failed = true
		up.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, fmt.Sprintf(format, args...))
}

func (r *recorder) Run(name string, f func(t sandboxtest.T)) bool {
	sub := &recorder{name: path.Join(r.name, name), parent: r}
	r.mu.Lock()
	r.subs = append(r.subs, sub)
	r.mu.Unlock()
	ended := make(chan struct{})
	inGoroutine(func() { f(sub) }, ended)
	<-ended
	for _, cleanup := range slices.Backward(sub.cleanups) {
		ended := make(chan struct{})
		inGoroutine(cleanup, ended)
		<-ended
	}
	return !sub.Failed()
}

// inGoroutine lets f end its goroutine, as Fatalf does.
func inGoroutine(f func(), ended chan struct{}) {
	go func() {
		defer close(ended)
		f()
	}()
}

// rules lists the rules that were run, by outcome.
func (r *recorder) rules() (passed, failed, skipped []string) {
	if len(r.subs) == 0 {
		switch {
		case r.failed:
			return nil, []string{r.name}, nil
		case r.skipped:
			return nil, nil, []string{r.name}
		}
		return []string{r.name}, nil, nil
	}
	for _, sub := range r.subs {
		p, f, s := sub.rules()
		passed, failed, skipped = append(passed, p...), append(failed, f...), append(skipped, s...)
	}
	return passed, failed, skipped
}

// why is what the failed rules said.
func (r *recorder) why() string {
	var b strings.Builder
	for _, message := range r.messages {
		fmt.Fprintf(&b, "\n  %s: %s", r.name, message)
	}
	for _, sub := range r.subs {
		b.WriteString(sub.why())
	}
	return b.String()
}

// conform runs the suite and looks at what became of it.
func conform(h sandboxtest.Harness) *recorder {
	r := &recorder{}
	ended := make(chan struct{})
	inGoroutine(func() { sandboxtest.Conform(r, h) }, ended)
	<-ended
	return r
}
