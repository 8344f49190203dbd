package egresstest

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// HostsFileName gives a name of one label other than localhost that this machine's
// hosts file has, with an address of it that the test can use. Not every machine
// has one.
func HostsFileName(t testing.TB, usable func(netip.Addr) bool) (name string, addr netip.Addr, found bool) {
	t.Helper()
	text, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Logf("no hosts file: %v", err)
		return "", netip.Addr{}, false
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		addr, err := netip.ParseAddr(fields[0])
		if err != nil || !usable(addr) {
			continue
		}
		for _, name := range fields[1:] {
			if _, err := sandbox.ParseHost(name); err == nil && !strings.Contains(name, ".") && name != "localhost" {
				return name, addr, true
			}
		}
	}
	t.Log("the hosts file has no usable name of one label but localhost")
	return "", netip.Addr{}, false
}
