//go:build linux && amd64

package ptrace

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// memory says what a child's guest memory is made of.
type memory struct {
	size  uint64
	spans []platform.Span
	// fd is a file whose ranges are at their own offsets in guest memory, -1 for
	// none; shared: writes go to the file.
	fd     int
	ranges []platform.Range
	shared bool
	// hot are pages to make ready in advance.
	hot []platform.Range
	// large is from where on large pages are asked for; 0 for nowhere.
	large uint64
}

// pages are the spans as they are mapped: the clock page first, each cut off at
// the end of memory, adjacent ones of the same rights together.
func (g memory) pages() []platform.Span {
	out := []platform.Span{{Lo: platform.ClockPage, Hi: platform.UserLo, Prot: platform.Read}}
	for _, s := range g.spans {
		s.Hi = min(s.Hi, g.size)
		last := &out[len(out)-1]
		switch {
		case s.Lo >= s.Hi:
		case last.Hi == s.Lo && last.Prot == s.Prot:
			last.Hi = s.Hi
		default:
			out = append(out, s)
		}
	}
	return out
}

// check validates what a machine is made of.
func (g memory) check() error {
	if g.size < platform.UserLo || g.size > maxSize {
		return fmt.Errorf("%w: memory of %d MiB", platform.ErrMachine, g.size>>20)
	}
	end := uint64(platform.UserLo)
	for _, s := range g.spans {
		if s.Lo < end || s.Hi <= s.Lo || (s.Lo|s.Hi)%platform.PageSize != 0 || s.Hi > maxSize {
			return fmt.Errorf("%w: spans must be sorted pages below %d GiB", platform.ErrMachine, uint64(maxSize)>>30)
		}
		if s.Prot&platform.Write != 0 && s.Prot&platform.Exec != 0 {
			return fmt.Errorf("%w: a span is writable and executable", platform.ErrMachine)
		}
		end = s.Hi
	}
	return nil
}

// maxSize is the most memory a machine can have: what the KVM platform can
// give, so that layouts fit both.
const maxSize = 32 << 30

// calls are the system calls that map the memory.
func (g memory) calls() []call {
	var calls []call
	for _, s := range g.pages() {
		for at := s.Lo; at < s.Hi; {
			end, inside := g.split(at, s.Hi)
			flags, fd, off := uint64(unix.MAP_FIXED|unix.MAP_NORESERVE), ^uint64(0), uint64(0)
			switch {
			case inside && g.shared:
				flags, fd, off = flags|unix.MAP_SHARED, childMemory, at
			case inside:
				flags, fd, off = flags|unix.MAP_PRIVATE, childMemory, at
			default:
				flags |= unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
			}
			calls = append(calls, call{
				what: "map guest memory", nr: unix.SYS_MMAP, args: [6]uint64{at, end - at, protection(s.Prot), flags, fd, off},
			})
			at = end
		}
	}
	advise := func(r platform.Range, advice uint64) {
		calls = append(calls, call{
			what: "advise", nr: unix.SYS_MADVISE, args: [6]uint64{r.Lo, r.Hi - r.Lo, advice}, optional: true,
		})
	}
	if lo := (g.large + largePage - 1) &^ (largePage - 1); g.large > 0 && lo < g.size {
		advise(platform.Range{Lo: lo, Hi: g.size}, unix.MADV_HUGEPAGE)
	}
	for _, r := range g.hot {
		if r.Lo < r.Hi && r.Hi <= g.size {
			advise(r, unix.MADV_POPULATE_WRITE)
		}
	}
	return calls
}

const largePage = 2 << 20

// split finds the piece of [lo,hi) that is wholly inside or outside the file.
func (g memory) split(lo, hi uint64) (end uint64, inside bool) {
	if g.fd < 0 {
		return hi, false
	}
	for _, r := range g.ranges {
		if lo < r.Lo {
			return min(hi, r.Lo), false
		}
		if lo < r.Hi {
			return min(hi, r.Hi), true
		}
	}
	return hi, false
}

func protection(p platform.Prot) uint64 {
	v := uint64(unix.PROT_READ)
	if p&platform.Write != 0 {
		v |= unix.PROT_WRITE
	}
	if p&platform.Exec != 0 {
		v |= unix.PROT_EXEC
	}
	return v
}

// confine makes a fresh child a guest: its memory is mapped, and everything
// else is taken from it.
func (c *child) confine(i isolation, g memory) error {
	var r unix.PtraceRegs
	if err := getRegs(c.pid, &r); err != nil {
		return fmt.Errorf("%w: registers: %w", platform.ErrMachine, err)
	}
	scratch := r.Rsp&^15 - tableSize - scratchSize
	if _, err := unix.Pwrite(c.mem, scratchBytes(), int64(scratch+tableSize)); err != nil {
		return fmt.Errorf("%w: write to the guest's process: %w", platform.ErrMachine, err)
	}
	if err := c.makeAll(c.confinement(i, g, scratch+tableSize), scratch); err != nil {
		return confinementFailed(err)
	}
	// Its stack, with the table, goes with the rest. A file of the kernel's own
	// (the vDSO) can be sealed.
	above := call{what: "unmap", nr: unix.SYS_MUNMAP, args: [6]uint64{stubEnd, userEnd - stubEnd}}
	if err := c.make(above); err != nil {
		if errors.Is(err, unix.EPERM) {
			return &Refusal{Need: "to take the vDSO from a process", Mend: "this kernel seals system mappings (CONFIG_MSEAL_SYSTEM_MAPPINGS)", Cause: err}
		}
		return fmt.Errorf("%w: %w", platform.ErrMachine, err)
	}
	if err := c.checkMaps(g); err != nil {
		return err
	}
	// Other processes of the same user must not read its memory either.
	hide := call{what: "not dumpable", nr: unix.SYS_PRCTL, args: [6]uint64{unix.PR_SET_DUMPABLE, 0}}
	if err := c.make(hide); err != nil {
		return fmt.Errorf("%w: %w", platform.ErrMachine, err)
	}
	filter := call{what: "seccomp filter", nr: unix.SYS_SECCOMP, args: [6]uint64{unix.SECCOMP_SET_MODE_FILTER, 0, programAddr}}
	if err := c.make(filter); err != nil {
		return &Refusal{Need: "a seccomp filter", Mend: "the kernel needs CONFIG_SECCOMP_FILTER", Cause: err}
	}
	return c.checkStatus()
}

// scratchSize is the room for what calls point to.
const scratchSize = 64

// confinement is what a child does first. scratch is zero memory of its.
func (c *child) confinement(i isolation, g memory, scratch uint64) []call {
	dot, header, sets, name := scratch, scratch+8, scratch+16, scratch+40
	calls := []call{
		{what: "name", nr: unix.SYS_PRCTL, args: [6]uint64{unix.PR_SET_NAME, name}},
		{what: "no new privileges", nr: unix.SYS_PRCTL, args: [6]uint64{unix.PR_SET_NO_NEW_PRIVS, 1}},
		{what: "unmap", nr: unix.SYS_MUNMAP, args: [6]uint64{0, stubBase}},
	}
	if i.private() {
		calls = append(calls,
			call{what: "empty root", nr: unix.SYS_FCHDIR, args: [6]uint64{childRoot}},
			call{what: "empty root", nr: unix.SYS_CHROOT, args: [6]uint64{dot}})
	}
	calls = append(calls, g.calls()...)
	return append(calls,
		call{what: "drop capabilities", nr: unix.SYS_CAPSET, args: [6]uint64{header, sets}},
		call{what: "close descriptors", nr: unix.SYS_CLOSE_RANGE, args: [6]uint64{0, 0xFFFFFFFF, 0}})
}

// scratchBytes is the content of the scratch memory: the name of the working
// folder, no capabilities, and the name that ps shows.
func scratchBytes() []byte {
	b := make([]byte, scratchSize)
	b[0] = '.'
	b[8], b[9], b[10], b[11] = 0x22, 0x05, 0x08, 0x20 // _LINUX_CAPABILITY_VERSION_3
	copy(b[40:], "maf-guest")
	return b
}

func confinementFailed(err error) error {
	if errors.Is(err, unix.EPERM) && strings.HasPrefix(err.Error(), "map guest memory") {
		return &Refusal{Need: "to execute what is in the template's file", Mend: "the folder of templates is on a file system mounted noexec", Cause: err}
	}
	if errors.Is(err, unix.ENOSYS) {
		return &Refusal{Need: "what confines a process", Mend: "Linux 5.9 has all of it", Cause: err}
	}
	return fmt.Errorf("%w: confine the guest: %w", platform.ErrMachine, err)
}

// checkStatus asks the kernel whether the child is confined. The file was opened
// before: a process that is not dumpable may have none that can be.
func (c *child) checkStatus() error {
	b := make([]byte, 8<<10) // four times what there is
	n, err := unix.Pread(c.status, b, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnconfined, err)
	}
	_ = unix.Close(c.status)
	c.status = -1
	return checkStatus(string(b[:n]))
}

var errUnconfined = fmt.Errorf("%w: the kernel does not confirm that the guest is confined", platform.ErrMachine)

// confined are the lines of /proc/pid/status that a child must have.
var confined = map[string]string{
	"NoNewPrivs": "1", "Seccomp": "2", "Threads": "1",
	"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapAmb": "0000000000000000",
}

func checkStatus(status string) error {
	seen := 0
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		want, ok := confined[name]
		if ok && value != want {
			return fmt.Errorf("%w: %s is %.40q, it has to be %s", errUnconfined, name, value, want)
		}
		if ok {
			seen++
		}
	}
	if seen != len(confined) {
		return fmt.Errorf("%w: %d of %d lines", errUnconfined, seen, len(confined))
	}
	return nil
}

// checkMaps compares what the child has mapped with what it should have.
func (c *child) checkMaps(g memory) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.pid))
	if err != nil {
		return fmt.Errorf("%w: %w", errUnconfined, err)
	}
	return checkMaps(string(b), g.pages())
}

// checkMaps goes through the lines of /proc/pid/maps: the guest's pages, all of
// them and with their rights, then the stub, then perhaps the vsyscall page,
// which no process is without and the filter closes. The kernel may join or
// part neighbours.
func checkMaps(maps string, pages []platform.Span) error {
	pages = append(append([]platform.Span(nil), pages...), platform.Span{Lo: stubBase, Hi: stubEnd, Prot: platform.Read | platform.Exec})
	for line := range strings.Lines(maps) {
		lo, hi, rights, ok := mapsLine(line)
		if !ok {
			return fmt.Errorf("%w: memory map %.80q", errUnconfined, line)
		}
		if lo == vsyscallPage && hi == vsyscallPage+platform.PageSize && rights[1] == '-' {
			continue
		}
		for lo < hi {
			if len(pages) == 0 || pages[0].Lo != lo || rights[:3] != letters(pages[0].Prot) {
				return fmt.Errorf("%w: memory map %.80q", errUnconfined, line)
			}
			lo = min(hi, pages[0].Hi)
			if pages[0].Lo = lo; lo == pages[0].Hi {
				pages = pages[1:]
			}
		}
	}
	if len(pages) > 0 {
		return fmt.Errorf("%w: nothing is mapped at %#x", errUnconfined, pages[0].Lo)
	}
	return nil
}

// mapsLine reads the range and the rights of a line such as
// "00400000-00452000 r-xp 00000000 08:02 173521 /usr/bin/dbus-daemon".
func mapsLine(line string) (lo, hi uint64, rights string, ok bool) {
	span, rest, _ := strings.Cut(line, " ")
	from, to, _ := strings.Cut(span, "-")
	lo, err1 := strconv.ParseUint(from, 16, 64)
	hi, err2 := strconv.ParseUint(to, 16, 64)
	if err1 != nil || err2 != nil || lo >= hi || len(rest) < 4 {
		return 0, 0, "", false
	}
	return lo, hi, rest[:4], true
}

// vsyscallPage is where the kernel's obsolete way in is (Documentation/arch/x86/x86_64/mm.rst).
const vsyscallPage = 0xffffffffff600000

func letters(p platform.Prot) string {
	b := []byte("r--")
	if p&platform.Write != 0 {
		b[1] = 'w'
	}
	if p&platform.Exec != 0 {
		b[2] = 'x'
	}
	return string(b)
}
