package x86

import "os"

// TSC reads the time stamp counter after all earlier instructions.
func TSC() uint64

// CPUID executes CPUID (SDM vol. 2A).
func CPUID(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)

// XCR0 reads the extended control register that says which state is enabled.
// The caller has checked that the operating system set it
// (CPUID.1:ECX.OSXSAVE).
func XCR0() uint64

// InvariantTSC reports whether the time stamp counter runs at a constant rate:
// either the processor promises it for all power states
// (CPUID.80000007H:EDX[8]), or the kernel itself keeps time by it, having
// watched it against another clock.
func InvariantTSC() bool {
	if top, _, _, _ := CPUID(0x80000000, 0); top >= 0x80000007 {
		if _, _, _, d := CPUID(0x80000007, 0); d&(1<<8) != 0 {
			return true
		}
	}
	const source = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
	b, err := os.ReadFile(source)
	return err == nil && string(b) == "tsc\n"
}
