package egress_test

import (
	"net/netip"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/egress"
)

func TestEveryKindOfAddressHasItsClass(t *testing.T) {
	for text, want := range map[string]egress.Class{
		"8.8.8.8": egress.ClassPublic, "93.184.216.34": egress.ClassPublic, "223.255.255.255": egress.ClassPublic,
		"2606:2800:220:1:248:1893:25c8:1946": egress.ClassPublic, "2a00:1450::1": egress.ClassPublic,
		"127.0.0.1": egress.ClassLoopback, "127.255.255.254": egress.ClassLoopback, "::1": egress.ClassLoopback,
		"10.0.0.1": egress.ClassPrivate, "172.16.0.1": egress.ClassPrivate, "172.31.255.255": egress.ClassPrivate,
		"172.32.0.0": egress.ClassPublic, "172.15.255.255": egress.ClassPublic, "192.168.255.1": egress.ClassPrivate,
		"fc00::1": egress.ClassPrivate, "fdff::1": egress.ClassPrivate,
		"100.64.0.1": egress.ClassShared, "100.127.255.255": egress.ClassShared, "100.128.0.0": egress.ClassPublic,
		"169.254.1.1": egress.ClassLinkLocal, "fe80::1": egress.ClassLinkLocal, "febf::1": egress.ClassLinkLocal,
		"fe80::1%eth0": egress.ClassLinkLocal, "2606::1%eth0": egress.ClassLinkLocal,
		"169.254.169.254": egress.ClassMetadata, "100.100.100.200": egress.ClassMetadata, "168.63.129.16": egress.ClassMetadata,
		"169.254.170.2": egress.ClassMetadata, "fd00:ec2::254": egress.ClassMetadata, "fd20:ce::254": egress.ClassMetadata,
		"fd00:c1::a9fe:a9fe": egress.ClassMetadata, "fd00:a9fe:a9fe::1": egress.ClassMetadata, "fd00:100::100:200": egress.ClassMetadata,
		"0.0.0.0": egress.ClassUnspecified, "0.1.2.3": egress.ClassUnspecified, "::": egress.ClassUnspecified,
		"224.0.0.1": egress.ClassMulticast, "239.255.255.255": egress.ClassMulticast, "ff02::1": egress.ClassMulticast,
		"255.255.255.255":  egress.ClassBroadcast,
		"::ffff:127.0.0.1": egress.ClassMapped, "::ffff:8.8.8.8": egress.ClassMapped, "::ffff:169.254.169.254": egress.ClassMapped,
		"::127.0.0.1": egress.ClassMapped, "::ffff:0:127.0.0.1": egress.ClassMapped,
		"64:ff9b::7f00:1": egress.ClassNAT64, "64:ff9b:1::1": egress.ClassNAT64,
		"2002:7f00:1::": egress.Class6to4, "192.88.99.1": egress.Class6to4,
		"2001::1": egress.ClassTeredo, "2001:0:ffff::": egress.ClassTeredo,
		"192.0.2.7": egress.ClassDocumentation, "198.51.100.1": egress.ClassDocumentation, "203.0.113.1": egress.ClassDocumentation,
		"2001:db8::1": egress.ClassDocumentation, "3fff::1": egress.ClassDocumentation,
		"198.18.0.1": egress.ClassBenchmark, "198.19.255.255": egress.ClassBenchmark, "2001:2::1": egress.ClassBenchmark,
		"192.0.0.1": egress.ClassReserved, "240.0.0.1": egress.ClassReserved, "2001:10::1": egress.ClassReserved,
		"2001:20::1": egress.ClassReserved, "100::1": egress.ClassReserved, "5f00::1": egress.ClassReserved,
		"fec0::1": egress.ClassReserved, "4000::1": egress.ClassReserved,
	} {
		if got := egress.Classify(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is %v, not %v", text, got, want)
		}
	}
	if got := egress.Classify(netip.Addr{}); got != egress.ClassInvalid {
		t.Errorf("no address is %v", got)
	}
}

// netip knows some classes too; what it calls special is never public here.
func FuzzClassify(f *testing.F) {
	for _, text := range []string{"\x7f\x00\x00\x01", "\xfe\x80aaaaaaaaaaaaaa", "\x08\x08\x08\x08", "\xff\x02aaaaaaaaaaaaaa"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		addr, ok := netip.AddrFromSlice(b)
		class := egress.Classify(addr)
		special := !ok || addr.IsLoopback() || addr.IsPrivate() || addr.IsMulticast() || addr.IsUnspecified() ||
			addr.IsLinkLocalUnicast() || addr.Is4In6()
		if special && class == egress.ClassPublic {
			t.Errorf("%v is public", addr)
		}
		if class == egress.ClassPublic && !addr.IsGlobalUnicast() {
			t.Errorf("%v is public, but no global unicast address", addr)
		}
	})
}
