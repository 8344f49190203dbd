package sandboxtest

import "testing"

// T is what the conformance suite needs of a test. [testing.T] fits through
// [RunConformance]; a test of the suite itself can bring its own.
type T interface {
	// Helper, Name, Cleanup, Logf, Errorf and Failed are as in package testing.
	Helper()
	Name() string
	Cleanup(f func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	// Fatalf and Skipf end the calling goroutine.
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Failed() bool
	// Run runs a subtest and says whether it did not fail.
	Run(name string, f func(t T)) bool
}

type testingT struct{ *testing.T }

func (t testingT) Run(name string, f func(T)) bool {
	return t.T.Run(name, func(t *testing.T) { f(testingT{t}) })
}
