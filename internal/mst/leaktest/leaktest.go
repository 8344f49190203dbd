// Package leaktest fails a package's tests that leave goroutines or descriptors.
package leaktest

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"testing"
	"time"
)

// settle bounds the wait for what the tests did to end.
const settle = 10 * time.Second

// Main runs the tests and gives the status for os.Exit: that of the tests, and
// 1 when they leave more goroutines or descriptors than there were.
func Main(m *testing.M) int {
	flag.Parse()
	// The runtime opens its poller with the first connection and keeps it.
	if listener, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		_ = listener.Close()
	}
	// It keeps the goroutine that takes signals, too.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	signal.Stop(signals)
	goroutines, descriptors := runtime.NumGoroutine(), openDescriptors()
	code := m.Run()
	if f := flag.Lookup("test.fuzz"); f != nil && f.Value.String() != "" {
		return code // the fuzzing engine has goroutines of its own
	}
	deadline := time.Now().Add(settle)
	for runtime.NumGoroutine() > goroutines || openDescriptors() > descriptors {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			_, _ = os.Stderr.Write(buf[:runtime.Stack(buf, true)])
			_, _ = fmt.Fprintf(os.Stderr, "goroutines or descriptors are left: %d and %d, before %d and %d\n",
				runtime.NumGoroutine(), openDescriptors(), goroutines, descriptors)
			return max(code, 1)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return code
}

// openDescriptors counts them where the system tells.
func openDescriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}
