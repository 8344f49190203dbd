//go:build linux

package platformtest

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// Where the tests' guests have their things.
const (
	CodeAddr = platform.UserLo
	ReadOnly = CodeAddr + platform.PageSize
	DataAddr = ReadOnly + platform.PageSize
	DataEnd  = DataAddr + 16*platform.PageSize
	HeapAddr = 0x800000
	MemSize  = HeapAddr + 32<<20
	// HeapEnd is where the heap's span ends, which is for the largest guest;
	// memory ends earlier.
	HeapEnd = MemSize + 32<<20
	// Guard is where the template's part of the heap ends.
	Guard = HeapAddr + 1<<20
	// Flags are those of a program that has just begun.
	Flags = 0x202
)

// Spans is the layout of the tests' guests.
var Spans = []platform.Span{
	{Lo: CodeAddr, Hi: ReadOnly, Prot: platform.Read | platform.Exec},
	{Lo: ReadOnly, Hi: DataAddr, Prot: platform.Read},
	{Lo: DataAddr, Hi: DataEnd, Prot: platform.Read | platform.Write},
	{Lo: HeapAddr, Hi: HeapEnd, Prot: platform.Read | platform.Write},
}

// Dirty is a guest that writes AL to RCX pages from RBX on.
//
//	loop: mov [rbx], al; add rbx, 0x1000; dec rcx; jnz loop; syscall
var Dirty = []byte{
	0x88, 0x03, 0x48, 0x81, 0xC3, 0x00, 0x10, 0x00, 0x00, 0x48, 0xFF, 0xC9, 0x75, 0xF2, 0x0F, 0x05,
}

// patience bounds a guest that does not exit.
const patience = 20 * time.Second

// Assemble reads hexadecimal code with spaces.
func Assemble(t testing.TB, code string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(code, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Boot makes a machine whose code page holds code. The descriptor is that of its
// memory file.
func Boot(t testing.TB, p platform.Platform, code []byte) (platform.Machine, int) {
	t.Helper()
	m, fd, err := p.Boot(MemSize, Spans, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if !m.Load(CodeAddr, code) {
		t.Fatal("code not loaded")
	}
	*m.Regs() = platform.Regs{RIP: CodeAddr, RSP: DataEnd, RFLAGS: Flags}
	return m, fd
}

// Guest is Boot without the memory file.
func Guest(t testing.TB, p platform.Platform, code []byte) platform.Machine {
	t.Helper()
	m, fd := Boot(t, p, code)
	_ = unix.Close(fd)
	return m
}

// Finish runs a guest to its first real exit.
func Finish(t testing.TB, m platform.Machine) (e platform.Exit) {
	t.Helper()
	var err error
	late := false
	platform.OnThread(m, func() {
		end := time.Now().Add(patience)
		defer time.AfterFunc(patience, m.Interrupt).Stop()
		for e.Kind = platform.Interrupted; err == nil && e.Kind == platform.Interrupted && !late; late = time.Now().After(end) {
			e, err = m.Run()
		}
	})
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	if e.Kind == platform.Interrupted {
		t.Fatal("the guest did not exit")
	}
	return e
}

// Template boots a guest with a pattern in memory and makes a backing of it. A
// system call puts its processor where a real template's is.
func Template(t testing.TB, p platform.Platform, code []byte) (*platform.Backing, *platform.Context) {
	t.Helper()
	// nop; syscall in front of the code
	m, fd := Boot(t, p, append([]byte{0x90, 0x0F, 0x05}, code...))
	pattern := make([]byte, Guard-HeapAddr)
	for i := range pattern {
		pattern[i] = byte(i * 7 >> 3)
	}
	clear(pattern[64<<10 : 128<<10]) // a hole of zeros
	if !m.CopyOut(HeapAddr, pattern) || !m.CopyOut(DataAddr, []byte("data of the template")) {
		t.Fatal("memory refused")
	}
	m.SetFSBase(DataAddr)
	if e := Finish(t, m); e.Kind != platform.Syscall {
		t.Fatalf("%+v", e)
	}
	c := new(platform.Context)
	if err := m.Save(c); err != nil {
		t.Fatal(err)
	}
	b, err := platform.NewBacking(fd, []platform.Range{{Lo: 0, Hi: DataEnd}, {Lo: HeapAddr, Hi: Guard}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b, c
}

// Clone makes a machine of a template.
func Clone(t testing.TB, p platform.Platform, b *platform.Backing, c *platform.Context) platform.Machine {
	t.Helper()
	m, err := p.Clone(b, MemSize, Spans, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// OpenDescriptors counts this process's descriptors.
func OpenDescriptors(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}
