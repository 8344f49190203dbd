//go:build linux && amd64

package ptrace

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

// Where the tests' guests have their things.
const (
	codeAddr = platformtest.CodeAddr
	readOnly = platformtest.ReadOnly
	dataAddr = platformtest.DataAddr
	dataEnd  = platformtest.DataEnd
	heapAddr = platformtest.HeapAddr
	memSize  = platformtest.MemSize
	heapEnd  = platformtest.HeapEnd
	guard    = platformtest.Guard
)

var openPlatform = sync.OnceValues(New)

// testPlatform gives the platform that all tests share.
func testPlatform(t testing.TB) *Platform {
	t.Helper()
	p, err := openPlatform()
	if r := (*Refusal)(nil); errors.As(err, &r) {
		t.Skipf("NO TRACED PROCESS WAS TESTED: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// newGuest makes a machine whose code page holds code.
func newGuest(t testing.TB, code []byte) *Machine {
	t.Helper()
	return platformtest.Guest(t, testPlatform(t), code).(*Machine)
}

func clone(t testing.TB, p *Platform, b *platform.Backing, c *platform.Context) *Machine {
	t.Helper()
	return platformtest.Clone(t, p, b, c).(*Machine)
}

// patience bounds a guest that does not exit.
const patience = 20 * time.Second

// eyes look at this platform's machines.
var eyes = platformtest.Eyes{
	Memory: func(t testing.TB, tested platform.Machine, b *platform.Backing) {
		t.Helper()
		m := tested.(*Machine)
		if m.backing != b {
			t.Fatal("the machine has another template")
		}
		for _, s := range platformtest.Spans {
			if err := m.compare(s.Lo, min(s.Hi, memSize)); err != nil {
				t.Fatal(err)
			}
		}
	},
	Bytes: func(t testing.TB, m platform.Machine, lo, hi uint64) []byte {
		t.Helper()
		return bytesAt(t, m.(*Machine), lo, hi)
	},
	Settle: func(m platform.Machine) (err error) {
		platform.OnThread(m, func() { err = m.(*Machine).settle() })
		return err
	},
	Compared: []platform.Range{{Lo: codeAddr, Hi: dataEnd}, {Lo: heapAddr, Hi: guard}},
	Patience: patience,
}

// bytesAt gives guest memory, whatever the guest's rights.
func bytesAt(t testing.TB, m *Machine, lo, hi uint64) []byte {
	t.Helper()
	b := make([]byte, hi-lo)
	if !m.read(b, lo) {
		t.Fatalf("memory at %#x cannot be read", lo)
	}
	return b
}

// children counts this process's children.
func children(t testing.TB) int {
	t.Helper()
	n := 0
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		b, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended, or the kernel has no such file
		}
		if err != nil {
			t.Fatal(err)
		}
		n += len(bytes.Fields(b))
	}
	return n
}
