//go:build linux && amd64

package ptrace

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// Where the tests' guests have their things.
const (
	codeAddr = platform.UserLo
	readOnly = codeAddr + platform.PageSize
	dataAddr = readOnly + platform.PageSize
	dataEnd  = dataAddr + 16*platform.PageSize
	heapAddr = 0x800000
	memSize  = heapAddr + 32<<20
	// The heap's span is for the largest guest; memory ends earlier.
	heapEnd = memSize + 32<<20
	guard   = heapAddr + 1<<20 // where the template's part of the heap ends
)

var testSpans = []platform.Span{
	{Lo: codeAddr, Hi: readOnly, Prot: platform.Read | platform.Exec},
	{Lo: readOnly, Hi: dataAddr, Prot: platform.Read},
	{Lo: dataAddr, Hi: dataEnd, Prot: platform.Read | platform.Write},
	{Lo: heapAddr, Hi: heapEnd, Prot: platform.Read | platform.Write},
}

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

// assemble reads hexadecimal code with spaces.
func assemble(t testing.TB, code string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(code, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// bootGuest makes a machine whose code page holds code.
func bootGuest(t testing.TB, p *Platform, code []byte) (*Machine, int) {
	t.Helper()
	b, fd, err := p.Boot(memSize, testSpans, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := b.(*Machine)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if !m.Load(codeAddr, code) {
		t.Fatal("code not loaded")
	}
	*m.Regs() = platform.Regs{RIP: codeAddr, RSP: dataEnd, RFLAGS: 0x202}
	return m, fd
}

// newGuest is bootGuest without the memory file.
func newGuest(t testing.TB, code []byte) *Machine {
	t.Helper()
	m, fd := bootGuest(t, testPlatform(t), code)
	_ = unix.Close(fd)
	return m
}

// patience bounds a guest that does not exit.
const patience = 20 * time.Second

// finish runs a guest to its first real exit.
func finish(t testing.TB, m *Machine) (e platform.Exit) {
	t.Helper()
	var late atomic.Bool
	defer time.AfterFunc(patience, func() { late.Store(true); m.Interrupt() }).Stop()
	for {
		e, err := m.Run()
		if err != nil {
			t.Fatalf("run: %v", err)
		}
		if e.Kind != platform.Interrupted {
			return e
		}
		if late.Load() {
			t.Fatal("the guest did not exit")
		}
	}
}

// dirty is a guest that writes AL to RCX pages from RBX on.
//
//	loop: mov [rbx], al; add rbx, 0x1000; dec rcx; jnz loop; syscall
var dirty = []byte{
	0x88, 0x03, 0x48, 0x81, 0xC3, 0x00, 0x10, 0x00, 0x00, 0x48, 0xFF, 0xC9, 0x75, 0xF2, 0x0F, 0x05,
}

// testTemplate boots a guest with a pattern in memory and makes a backing of
// it. A system call puts its processor where a real template's is.
func testTemplate(t testing.TB, p *Platform, code []byte) (*platform.Backing, *platform.Context) {
	t.Helper()
	// nop; syscall in front of the code
	m, fd := bootGuest(t, p, append([]byte{0x90, 0x0F, 0x05}, code...))
	pattern := make([]byte, guard-heapAddr)
	for i := range pattern {
		pattern[i] = byte(i * 7 >> 3)
	}
	clear(pattern[64<<10 : 128<<10]) // a hole of zeros
	if !m.CopyOut(heapAddr, pattern) || !m.CopyOut(dataAddr, []byte("data of the template")) {
		t.Fatal("memory refused")
	}
	m.SetFSBase(dataAddr)
	if e := finish(t, m); e.Kind != platform.Syscall {
		t.Fatalf("%+v", e)
	}
	c := new(platform.Context)
	if err := m.Save(c); err != nil {
		t.Fatal(err)
	}
	b, err := platform.NewBacking(fd, []platform.Range{{Lo: 0, Hi: dataEnd}, {Lo: heapAddr, Hi: guard}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b, c
}

func clone(t testing.TB, p *Platform, b *platform.Backing, c *platform.Context) *Machine {
	t.Helper()
	m, err := p.Clone(b, memSize, testSpans, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m.(*Machine)
}

// checkMemory compares all of guest memory with the template.
func checkMemory(t testing.TB, m *Machine, b *platform.Backing) {
	t.Helper()
	if m.backing != b {
		t.Fatal("the machine has another template")
	}
	for _, s := range testSpans {
		if err := m.compare(s.Lo, min(s.Hi, memSize)); err != nil {
			t.Fatal(err)
		}
	}
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

// openDescriptors counts this process's descriptors.
func openDescriptors(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
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
