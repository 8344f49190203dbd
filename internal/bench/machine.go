package bench

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Machine says where numbers were measured.
type Machine struct {
	OS     string `json:"os"`
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	// MemoryMiB is the machine's memory.
	MemoryMiB int64  `json:"memory_mib"`
	Go        string `json:"go"`
	Engine    string `json:"engine"`
	Isolation string `json:"isolation"`
	// Limits is how the memory of sandboxes was bounded.
	Limits string `json:"limits"`
	// Python is the guest's version.
	Python string `json:"python"`
	// Note says how to read the numbers.
	Note string `json:"note"`
}

// ThisMachine describes this machine; what the engine knows is left open.
func ThisMachine() Machine {
	m := Machine{OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(), CPU: "unknown"}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(b))
	}
	if v, ok := procValue("/proc/cpuinfo", "model name"); ok {
		m.CPU = v
	}
	if v, ok := procValue("/proc/meminfo", "MemTotal"); ok {
		if kib, err := strconv.ParseInt(strings.TrimSuffix(v, " kB"), 10, 64); err == nil {
			m.MemoryMiB = kib >> 10
		}
	}
	return m
}

// procValue gives the first value of key in a file of "key: value" lines.
func procValue(file, key string) (string, bool) {
	f, err := os.Open(file)
	if err != nil {
		return "", false
	}
	defer func() { _ = f.Close() }() // only read
	for s := bufio.NewScanner(f); s.Scan(); {
		k, v, ok := strings.Cut(s.Text(), ":")
		if ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v), true
		}
	}
	return "", false
}

func (m Machine) text() string {
	s := fmt.Sprintf("%s, %d cores, %d MiB, Linux %s\n", m.CPU, m.Cores, m.MemoryMiB, m.Kernel)
	s += fmt.Sprintf("engine %s (%s), limits %s, guest Python %s, %s\n", m.Engine, m.Isolation, m.Limits, m.Python, m.Go)
	if m.Note != "" {
		s += m.Note + "\n"
	}
	return s
}
