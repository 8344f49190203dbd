//go:build linux && amd64

package ptrace

import (
	"encoding/binary"
	"sync"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// Where the stub's page is, and what is where in it. The page is above all
// guest memory and below the end of user addresses.
const (
	stubBase = 0x7e0000000000
	stubEnd  = stubBase + platform.PageSize
	// userEnd is the end of what a process can map (TASK_SIZE_MAX with
	// four-level page tables).
	userEnd = 1<<47 - platform.PageSize

	// callAddr makes the system call that is in the registers, then traps.
	callAddr = stubBase + 0x100
	// callReturn is what a seccomp filter sees as the caller of callAddr.
	callReturn = callAddr + 2
	// tableAddr makes the calls of a table: RBP points to it, RBX counts its
	// rows.
	tableAddr = stubBase + 0x110
	// exitAddr ends the process. It is the entry point: a child that lost its
	// tracer before it was set up runs from here.
	exitAddr = stubBase + 0x180
	// programAddr is the struct sock_fprog of the filter.
	programAddr = stubBase + 0x200
	filterAddr  = programAddr + 16
)

// rowSize is the size of a row of the table in bytes: number and arguments of a
// call. Its result replaces the number.
const rowSize = 7 * 8

// stubCode is the code at its places in the page.
var stubCode = map[uint64][]byte{
	callAddr: {
		0x0F, 0x05, // syscall
		0xCC, // int3
	},
	tableAddr: {
		0x48, 0x8B, 0x45, 0x00, // mov rax, [rbp]
		0x48, 0x8B, 0x7D, 0x08, // mov rdi, [rbp+8]
		0x48, 0x8B, 0x75, 0x10, // mov rsi, [rbp+16]
		0x48, 0x8B, 0x55, 0x18, // mov rdx, [rbp+24]
		0x4C, 0x8B, 0x55, 0x20, // mov r10, [rbp+32]
		0x4C, 0x8B, 0x45, 0x28, // mov r8, [rbp+40]
		0x4C, 0x8B, 0x4D, 0x30, // mov r9, [rbp+48]
		0x0F, 0x05, // syscall
		0x48, 0x89, 0x45, 0x00, // mov [rbp], rax
		0x48, 0x83, 0xC5, rowSize, // add rbp, 56
		0x48, 0xFF, 0xCB, // dec rbx
		0x75, 0xD5, // jnz to the start
		0xCC, // int3
	},
	exitAddr: {
		0xB8, unix.SYS_EXIT_GROUP, 0x00, 0x00, 0x00, // mov eax, exit_group
		0x31, 0xFF, // xor edi, edi
		0x0F, 0x05, // syscall
		0xF4, // hlt
	},
}

// stubFile is the stub as an ELF program of one read-only page (System V ABI,
// chapters 4 and 5), with the filter behind its code.
var stubFile = sync.OnceValues(func() ([]byte, error) {
	filter, err := bpf.Assemble(filterProgram())
	if err != nil {
		return nil, err
	}
	b := make([]byte, platform.PageSize)
	le := binary.LittleEndian
	copy(b, "\x7fELF\x02\x01\x01") // 64 bits, little endian, version 1
	le.PutUint16(b[16:], 2)        // ET_EXEC
	le.PutUint16(b[18:], 62)       // EM_X86_64
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[24:], exitAddr)
	const header, program = 64, 56
	le.PutUint64(b[32:], header) // program headers
	le.PutUint16(b[52:], header)
	le.PutUint16(b[54:], program)
	le.PutUint16(b[56:], 2)
	load := b[header:]
	le.PutUint32(load, 1)     // PT_LOAD
	le.PutUint32(load[4:], 5) // readable, executable
	le.PutUint64(load[16:], stubBase)
	le.PutUint64(load[24:], stubBase)
	le.PutUint64(load[32:], platform.PageSize)
	le.PutUint64(load[40:], platform.PageSize)
	le.PutUint64(load[48:], platform.PageSize)
	stack := b[header+program:]
	le.PutUint32(stack, 0x6474e551) // PT_GNU_STACK
	le.PutUint32(stack[4:], 6)      // readable, writable
	for at, code := range stubCode {
		copy(b[at-stubBase:], code)
	}
	le.PutUint16(b[programAddr-stubBase:], uint16(len(filter)))
	le.PutUint64(b[programAddr-stubBase+8:], filterAddr)
	at := b[filterAddr-stubBase:]
	for i, f := range filter {
		le.PutUint16(at[i*8:], f.Op)
		at[i*8+2], at[i*8+3] = f.Jt, f.Jf
		le.PutUint32(at[i*8+4:], f.K)
	}
	return b, nil
})

// filterProgram lets nothing through but the stub's own
// madvise(MADV_DONTNEED), which gives a guest's changed memory back. A call by
// the vsyscall page becomes a fault of the guest; any other call means that the
// tracer made a mistake, and ends the process.
func filterProgram() []bpf.Instruction {
	// Offsets in struct seccomp_data (include/uapi/linux/seccomp.h).
	const (
		number, arch    = 0, 4
		callerLow       = 8
		callerHigh      = 12
		advice          = 16 + 2*8
		vsyscallAddress = 0xFFFFFFFF // the upper half
	)
	refuse := []bpf.Instruction{
		bpf.LoadAbsolute{Off: callerHigh, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: vsyscallAddress, SkipFalse: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_TRAP},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
	}
	var p []bpf.Instruction
	must := []struct{ off, value uint32 }{
		{arch, unix.AUDIT_ARCH_X86_64},
		{callerLow, callReturn & 0xFFFFFFFF},
		{callerHigh, callReturn >> 32},
		{number, unix.SYS_MADVISE},
		{advice, unix.MADV_DONTNEED},
		{advice + 4, 0},
	}
	for i, m := range must {
		toRefuse := 2*(len(must)-i-1) + 1
		p = append(p,
			bpf.LoadAbsolute{Off: m.off, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: m.value, SkipFalse: uint8(toRefuse)})
	}
	p = append(p, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
	return append(p, refuse...)
}
