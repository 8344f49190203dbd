package platform

import "runtime"

// Bound is a Machine whose processor belongs to one thread of the host. Its
// methods find their way there by themselves; who calls many of them in a row
// goes there once, by OnThread.
type Bound interface {
	// OnThread calls f on that thread and returns when f has. A panic of f comes
	// out of OnThread.
	OnThread(f func())
}

// OnThread calls f on the thread that m's Run has to be called on: the
// machine's own, or else the calling one, to which the goroutine is locked
// meanwhile.
func OnThread(m Machine, f func()) {
	if b, ok := m.(Bound); ok {
		b.OnThread(f)
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f()
}
