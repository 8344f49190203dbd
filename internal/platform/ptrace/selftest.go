//go:build linux && amd64

package ptrace

import (
	"fmt"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// canary is a way into the kernel and what has to come of it.
type canary struct {
	name string
	code []byte
	// kind of exit, and for a system call what RAX holds.
	kind platform.ExitKind
	rax  uint64
}

// canaries are tried by a guest of our own whenever a platform is opened.
var canaries = []canary{
	{"a system call", []byte{
		0xB8, 39, 0, 0, 0, // mov eax, getpid
		0x0F, 0x05, // syscall
	}, platform.Syscall, 39},
	{"a system call of the x32 ABI", []byte{
		0xB8, 39, 0, 0, 0x40,
		0x0F, 0x05,
	}, platform.Syscall, 39 | 0x40000000},
	{"a 32-bit system call", []byte{
		0xB8, 20, 0, 0, 0, // mov eax, getpid of 32-bit programs
		0xCD, 0x80, // int 0x80
		0x0F, 0x0B, // ud2
	}, platform.Fault, 0},
	{"the vsyscall page", []byte{
		0x31, 0xFF, 0x31, 0xF6, // xor edi, edi; xor esi, esi
		0x48, 0xC7, 0xC0, 0x00, 0x00, 0x60, 0xFF, // mov rax, vsyscallPage
		0xFF, 0xD0, // call rax: gettimeofday
		0x0F, 0x05, // syscall, if it comes back
	}, platform.Fault, 0},
}

// selfTest finds the best isolation that this host permits and tries the ways
// into the kernel.
func (p *Platform) selfTest() error {
	text := platform.Span{Lo: platform.UserLo, Hi: platform.UserLo + platform.PageSize, Prot: platform.Read | platform.Exec}
	data := platform.Span{Lo: text.Hi, Hi: text.Hi + platform.PageSize, Prot: platform.Read | platform.Write}
	g := memory{size: data.Hi, spans: []platform.Span{text, data}, fd: -1}
	var m *Machine
	var err error
	for _, p.isolation = range isolations {
		if m, err = p.newMachine(g, -1, nil); err == nil {
			break
		}
		if p.isolation.user {
			p.lacks, p.command = namespacesRefused(err)
		}
	}
	if err != nil {
		return err
	}
	if p.isolation.private() {
		p.lacks, p.command = "", ""
	}
	defer func() { _ = m.Close() }() // which does not fail
	m.thread.do(func() { err = p.try(m, text.Lo, data.Hi) })
	return err
}

// try lets a machine try the canaries, on its thread.
func (p *Platform) try(m *Machine, text, stack uint64) error {
	p.scan = scanWorks(m.child.pagemap)
	b := make([]byte, maxXState)
	n, err := getXState(m.child.pid, b)
	if err != nil {
		return fmt.Errorf("%w: extended state: %w", platform.ErrMachine, err)
	}
	p.xstateSize = n
	for _, c := range canaries {
		if !m.Load(text, c.code) {
			return &Refusal{Need: "to write to the program of its child", Mend: "the kernel runs with proc_mem.force_override=never"}
		}
		m.regs = platform.Regs{RIP: text, RSP: stack - 256, RFLAGS: flagsAlways}
		e := platform.Exit{Kind: platform.Interrupted}
		for e.Kind == platform.Interrupted {
			if e, err = m.run(); err != nil {
				return err
			}
		}
		if e.Kind != c.kind || c.kind == platform.Syscall && m.regs.RAX != c.rax {
			return fmt.Errorf("%w: %s of a guest ends as exit %d with %#x, which has to be exit %d with %#x", errUnconfined, c.name, e.Kind, m.regs.RAX, c.kind, c.rax)
		}
	}
	said, heard := "canary", make([]byte, 6)
	if !m.CopyOut(stack-8, []byte(said)) || !m.CopyIn(heard, stack-8) || string(heard) != said {
		return fmt.Errorf("%w: memory of a guest does not hold what was written to it", platform.ErrMachine)
	}
	return nil
}

// maxXState bounds the extended state in bytes: today's largest, with AMX, has
// 11,008.
const maxXState = 64 << 10
