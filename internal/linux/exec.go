package linux

import (
	"encoding/binary"
	"fmt"
	"io"
	"syscall"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux/vfs"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// Auxiliary vector types (include/uapi/linux/auxvec.h).
const (
	atNull        = 0
	atPhdr        = 3
	atPhent       = 4
	atPhnum       = 5
	atPagesz      = 6
	atBase        = 7
	atFlags       = 8
	atEntry       = 9
	atUID         = 11
	atEUID        = 12
	atGID         = 13
	atEGID        = 14
	atPlatform    = 15
	atHwcap       = 16
	atClktck      = 17
	atSecure      = 23
	atRandom      = 25
	atExecfn      = 31
	atSysinfoEhdr = 33
	atMinsigstksz = 51
)

// minSigStack is what AT_MINSIGSTKSZ says: a signal frame with AVX-512 state
// on Linux x86-64. Ours are smaller, since the extended state stays outside.
const minSigStack = 0xd30

// load copies an object's segments to their place. reused says that the place
// held bytes before, so that its zero part has to be cleared.
func (p *Process) load(o *Place, data []byte, reused bool) error {
	for _, s := range o.Segments {
		if s.Off > uint64(len(data)) || s.Filesz > uint64(len(data))-s.Off {
			return fmt.Errorf("%w: %s: a segment lies outside the file", ErrLayout, o.Path)
		}
		// As the kernel does, a page is filled from its start: bytes before a
		// segment in its first page come from the file too.
		lead := s.Vaddr - pageDown(s.Vaddr)
		if !p.cpu.Load(o.Bias+s.Vaddr-lead, data[s.Off-lead:s.Off+s.Filesz]) {
			return fmt.Errorf("%w: %s: segment at %#x is outside memory", ErrLayout, o.Path, o.Bias+s.Vaddr)
		}
		if reused && s.Memsz > s.Filesz {
			if !p.cpu.Zero(o.Bias+s.Vaddr+s.Filesz, s.Memsz-s.Filesz) {
				return fmt.Errorf("%w: %s: cannot clear at %#x", ErrLayout, o.Path, o.Bias+s.Vaddr)
			}
		}
	}
	return nil
}

// Program is what Exec starts.
type Program struct {
	// Exe, Interp and VDSO are file contents.
	Exe, Interp, VDSO []byte
	Argv, Env         []string
	// Dir is the working folder.
	Dir string
}

// Exec loads a program into fresh memory and makes the CPU ready to run it.
func (p *Process) Exec(prog Program) error {
	if err := p.load(&p.layout.Exe, prog.Exe, false); err != nil {
		return err
	}
	if err := p.load(&p.layout.Interp, prog.Interp, false); err != nil {
		return err
	}
	if !p.cpu.Load(p.layout.VDSO, prog.VDSO) {
		return fmt.Errorf("%w: no room for the vDSO", ErrLayout)
	}
	dir, e := p.fs.Resolve(p.fs.Root(), prog.Dir, true)
	if e != 0 {
		return fmt.Errorf("working folder %s: %w", prog.Dir, e)
	}
	if dir.Kind() != vfs.Dir {
		return fmt.Errorf("working folder %s: %w", prog.Dir, syscall.ENOTDIR)
	}
	p.fs.Ref(dir)
	p.cwd = dir
	sp, err := p.pushStack(prog)
	if err != nil {
		return err
	}
	r := p.cpu.Regs()
	// Bit 1 of RFLAGS is always set, bit 9 is IF.
	*r = platform.Regs{RIP: p.layout.Entry, RSP: sp, RFLAGS: 0x202}
	return nil
}

// pushStack writes the System V start-up stack and returns the stack pointer.
func (p *Process) pushStack(prog Program) (uint64, error) {
	sp := p.layout.Stack.Hi - 64
	ok := true
	put := func(b []byte) uint64 {
		sp -= uint64(len(b))
		ok = ok && p.cpu.CopyOut(sp, b)
		return sp
	}
	str := func(s string) uint64 { return put(append([]byte(s), 0)) }
	var argv, env []uint64
	for _, s := range prog.Argv {
		argv = append(argv, str(s))
	}
	for _, s := range prog.Env {
		env = append(env, str(s))
	}
	platformName, execfn := str("x86_64"), str(p.layout.Exe.Path)
	var seed [16]byte
	if _, err := io.ReadFull(p.random, seed[:]); err != nil {
		return 0, fmt.Errorf("random bytes: %w", err)
	}
	sp &^= 15
	random := put(seed[:])
	words := []uint64{uint64(len(argv))}
	words = append(words, argv...)
	words = append(words, 0)
	words = append(words, env...)
	words = append(words, 0,
		atPhdr, p.layout.Phdr, atPhent, 56, atPhnum, uint64(p.layout.PhdrCount),
		atPagesz, platform.PageSize, atBase, p.layout.Interp.Bias, atFlags, 0,
		atEntry, p.layout.ExeEntry, atUID, userID, atEUID, userID, atGID, userID, atEGID, userID,
		// AT_HWCAP is CPUID 1 EDX; glibc asks CPUID itself on x86.
		atHwcap, 0x178bfbff, atClktck, 100, atPlatform, platformName, atSecure, 0,
		atRandom, random, atExecfn, execfn, atSysinfoEhdr, p.layout.VDSO,
		atMinsigstksz, minSigStack, atNull, 0)
	b := make([]byte, 0, len(words)*8)
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	sp = (sp - uint64(len(b))) &^ 15
	ok = ok && p.cpu.CopyOut(sp, b)
	if !ok || sp < p.layout.Stack.Lo+stackSize/2 {
		return 0, fmt.Errorf("%w: arguments do not fit", syscall.E2BIG)
	}
	return sp, nil
}
