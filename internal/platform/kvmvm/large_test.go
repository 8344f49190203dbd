//go:build linux && amd64

package kvmvm

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/platformtest"
)

const (
	// largeLo is where the tests' guest has code that fills two large pages, of
	// which the second holds nothing, as a library that is not loaded.
	largeLo  = 4 * largePage
	largeEnd = largeLo + 2*largePage + platform.PageSize
	largeTop = 8 * largePage
)

var largeSpans = []platform.Span{
	{Lo: codeAddr, Hi: codeAddr + platform.PageSize, Prot: platform.Read | platform.Exec},
	{Lo: largeLo, Hi: largeEnd, Prot: platform.Read | platform.Exec},
	{Lo: largeEnd, Hi: largeTop, Prot: platform.Read | platform.Write},
}

// largeTemplate makes a backing whose guest goes on in the large page of code,
// which makes system calls.
func largeTemplate(t *testing.T, p *Platform) (*platform.Backing, *platform.Context) {
	t.Helper()
	b, fd, err := p.Boot(largeTop, largeSpans, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := b.(*Machine)
	t.Cleanup(func() { _ = m.Close() })
	m.Load(codeAddr, []byte{0x0F, 0x05})
	m.Load(largeLo, bytes.Repeat([]byte{0x0F, 0x05}, largePage/2)) // syscall, again and again
	*m.Regs() = platform.Regs{RIP: codeAddr, RSP: largeTop, RFLAGS: 0x202}
	if e := platformtest.Finish(t, m); e.Kind != platform.Syscall {
		t.Fatalf("%+v", e)
	}
	m.Regs().RIP = largeLo
	c := new(platform.Context)
	if err := m.Save(c); err != nil {
		t.Fatal(err)
	}
	backing, err := platform.NewBacking(fd, []platform.Range{{Lo: 0, Hi: largeTop}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = backing.Close() })
	return backing, c
}

// codeFile is what a supervisor gives its workers.
func codeFile(t *testing.T) int {
	t.Helper()
	fd, err := unix.MemfdCreate("code", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// ownPlatform is one that the other tests do not see.
func ownPlatform(t *testing.T) *Platform {
	t.Helper()
	testPlatform(t) // skips without KVM
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func largeClone(t *testing.T, p *Platform, b *platform.Backing, c *platform.Context) *Machine {
	t.Helper()
	m, err := p.Clone(b, largeTop, largeSpans, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m.(*Machine)
}

func TestClonesRunCodeOfASharedFileThatNobodyCanChange(t *testing.T) {
	maker, user := ownPlatform(t), ownPlatform(t)
	b, c := largeTemplate(t, maker)
	fd := codeFile(t)
	if err := maker.UseLarge(b, largeSpans, fd, "one"); err != nil {
		t.Skipf("this kernel makes no large pages of a file of memory: %v", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size != largePage+platform.PageSize {
		t.Errorf("the file has %d bytes, %v; one large page is loaded code", st.Size, err)
	}
	if _, err := unix.Pwrite(fd, []byte{1}, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("writing to the shared code: %v", err)
	}
	if _, err := unix.Mmap(fd, 0, largePage, unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("the shared code can be mapped for writing")
	}
	// Another process finds it made.
	if err := user.UseLarge(b, largeSpans, fd, "one"); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*Platform{"who made it": maker, "who found it": user} {
		one, other := largeClone(t, p, b, c), largeClone(t, p, b, c)
		for _, m := range []*Machine{one, other} {
			if e := platformtest.Finish(t, m); e.Kind != platform.Syscall || m.Regs().RIP != largeLo+2 {
				t.Errorf("%s: %+v at %#x", name, e, m.Regs().RIP)
			}
		}
		if one.CopyOut(largeLo, []byte{0x90}) {
			t.Errorf("%s: the guest's code could be written to", name)
		}
		// What the host loads is one machine's own, and gone after a reset.
		if !one.Load(largeLo, []byte{0x0F, 0x0B}) { // ud2
			t.Fatalf("%s: not loaded", name)
		}
		if at, ok := other.differs(0, largeTop); ok {
			t.Errorf("%s: page %#x of another machine has changed", name, at)
		}
		if at, ok := one.differs(0, largeTop); !ok || at != largeLo {
			t.Errorf("%s: page %#x differs, %v", name, at, ok)
		}
		for range 2 {
			if _, err := one.Revert(c); err != nil {
				t.Fatal(err)
			}
			if at, ok := one.differs(0, largeTop); ok {
				t.Errorf("%s: page %#x differs after a reset", name, at)
			}
			if e := platformtest.Finish(t, one); e.Kind != platform.Syscall {
				t.Errorf("%s: %+v after a reset", name, e)
			}
		}
	}
}

func TestAnotherTemplatesCodeIsNotUsed(t *testing.T) {
	p := ownPlatform(t)
	b, c := largeTemplate(t, p)
	made := codeFile(t)
	if err := p.UseLarge(b, largeSpans, made, "one"); err != nil {
		t.Skipf("this kernel makes no large pages of a file of memory: %v", err)
	}
	unsealable, err := unix.MemfdCreate("code", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(unsealable) }()
	for name, tt := range map[string]struct {
		fd   int
		name string
	}{
		"another name":               {made, "two"},
		"a name that begins like it": {made, "on"},
		"a file without seals":       {unsealable, "one"},
		"no file":                    {-1, "one"},
	} {
		t.Run(name, func(t *testing.T) {
			p := ownPlatform(t)
			if err := p.UseLarge(b, largeSpans, tt.fd, tt.name); err == nil {
				t.Error("it is used")
			}
			if p.large.Load() != nil {
				t.Error("it is kept")
			}
			m := largeClone(t, p, b, c)
			if e := platformtest.Finish(t, m); e.Kind != platform.Syscall {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestWhoMakesTheSharedCodeDoesItAlone(t *testing.T) {
	p := ownPlatform(t)
	b, _ := largeTemplate(t, p)
	if err := p.UseLarge(b, largeSpans, codeFile(t), "one"); err != nil {
		t.Skipf("this kernel makes no large pages of a file of memory: %v", err)
	}
	// A lock of this process would not keep it out; one of an open file does.
	fd := codeFile(t)
	other, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(other) }()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(uintptr(other), unix.F_OFD_SETLK, &lock); err != nil {
		t.Fatal(err)
	}
	made := make(chan error, 1)
	go func() { made <- p.UseLarge(b, largeSpans, fd, "one") }()
	// What another leaves half made, because it is killed, is made anew.
	if _, err := unix.Pwrite(fd, bytes.Repeat([]byte{1}, 3*largePage), 0); err != nil {
		t.Fatalf("while another makes it: %v", err)
	}
	if sealed, err := isSealed(fd); sealed || err != nil {
		t.Errorf("sealed %v, %v while another makes it", sealed, err)
	}
	lock.Type = unix.F_UNLCK
	if err := unix.FcntlFlock(uintptr(other), unix.F_OFD_SETLK, &lock); err != nil {
		t.Fatal(err)
	}
	if err := <-made; err != nil {
		t.Error(err)
	}
}
