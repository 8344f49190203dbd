package egress

import (
	"fmt"
	"net/netip"
)

// Class says what kind of place an address is. Zero is no address at all. Only
// public ones are reached without a permission.
type Class uint8

// The classes. Translated addresses (mapped, NAT64, 6to4, Teredo) are classes
// of their own because the address that is finally reached is another one.
const (
	ClassInvalid Class = iota
	// ClassPublic is an address of the Internet.
	ClassPublic
	// ClassLoopback is this host.
	ClassLoopback
	// ClassOwn is this host too, by a public address of its own: what listens there
	// need not be open to the Internet. [Classify] does not know it, a broker does.
	ClassOwn
	// ClassPrivate is the network of an organisation: RFC 1918, RFC 4193.
	ClassPrivate
	// ClassShared is a provider's side of a carrier-grade NAT: RFC 6598.
	ClassShared
	// ClassLinkLocal is the wire that this host is on: RFC 3927, RFC 4291.
	ClassLinkLocal
	// ClassMetadata is a cloud's service that tells a machine its secrets.
	ClassMetadata
	// ClassUnspecified is "this host on this network": RFC 1122, RFC 4291.
	ClassUnspecified
	// ClassMulticast is many hosts: RFC 5771, RFC 4291.
	ClassMulticast
	// ClassBroadcast is all hosts of the wire: RFC 919.
	ClassBroadcast
	// ClassMapped is an IPv4 address written as an IPv6 one, in the mapped, the
	// compatible or the translated form: RFC 4291, RFC 2765.
	ClassMapped
	// ClassNAT64 is an IPv4 address behind a translator: RFC 6052, RFC 8215.
	ClassNAT64
	// Class6to4 is an IPv4 address used as a tunnel's end: RFC 3056, RFC 3068.
	Class6to4
	// ClassTeredo is a tunnel through a NAT: RFC 4380.
	ClassTeredo
	// ClassDocumentation is for examples: RFC 5737, RFC 3849, RFC 9637.
	ClassDocumentation
	// ClassBenchmark is for laboratories: RFC 2544, RFC 5180.
	ClassBenchmark
	// ClassReserved is everything else that is not of the Internet.
	ClassReserved
	classEnd
)

var classNames = [classEnd]string{
	ClassInvalid: "invalid", ClassPublic: "public", ClassLoopback: "loopback", ClassOwn: "host's own", ClassPrivate: "private",
	ClassShared: "shared (carrier-grade NAT)", ClassLinkLocal: "link-local", ClassMetadata: "metadata service",
	ClassUnspecified: "unspecified", ClassMulticast: "multicast", ClassBroadcast: "broadcast",
	ClassMapped: "IPv4-mapped", ClassNAT64: "NAT64", Class6to4: "6to4", ClassTeredo: "Teredo",
	ClassDocumentation: "documentation", ClassBenchmark: "benchmark", ClassReserved: "reserved",
}

// String is the class in words.
func (c Class) String() string {
	if c >= classEnd {
		return fmt.Sprintf("class %d", uint8(c))
	}
	return classNames[c]
}

// private says whether a host's permission for private targets opens the class.
// What is left out, metadata and link-local above all, needs its own listing.
func (c Class) private() bool {
	return c == ClassPrivate || c == ClassLoopback || c == ClassShared || c == ClassOwn
}

// dialable says whether a listed literal of the class is one host that can be
// connected to. Linux, for one, takes 0.0.0.0 for the loopback.
func (c Class) dialable() bool {
	switch c {
	case ClassInvalid, ClassUnspecified, ClassMulticast, ClassBroadcast:
		return false
	default:
		return true
	}
}

type block struct {
	prefix netip.Prefix
	class  Class
}

// blocks are the IANA registries of special-purpose addresses (RFC 6890) and
// the metadata services of the large clouds. The first match counts, so that
// the narrow ones come first.
var blocks = parseBlocks([]struct {
	class    Class
	prefixes []string
}{
	{ClassMetadata, []string{
		"169.254.169.254/32",     // AWS, Azure, Google, Oracle, DigitalOcean and others
		"169.254.170.2/32",       // AWS ECS credentials
		"169.254.170.23/32",      // AWS EKS credentials
		"169.254.0.23/32",        // Tencent
		"100.100.100.200/32",     // Alibaba
		"168.63.129.16/32",       // Azure's wire server: looks public, is not
		"192.0.0.192/32",         // Oracle Classic
		"fd00:ec2::254/128",      // AWS
		"fd00:ec2::23/128",       // AWS EKS credentials
		"fd20:ce::254/128",       // Google
		"fd00:42::42/128",        // Scaleway
		"fd00:c1::a9fe:a9fe/128", // Oracle
		"fd00:a9fe:a9fe::1/128",  // Akamai (Linode)
		"fd00:100::100:200/128",  // Alibaba
	}},
	{ClassUnspecified, []string{"0.0.0.0/8", "::/128"}},
	{ClassLoopback, []string{"127.0.0.0/8", "::1/128"}},
	{ClassPrivate, []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"}},
	{ClassShared, []string{"100.64.0.0/10"}},
	{ClassLinkLocal, []string{"169.254.0.0/16", "fe80::/10"}},
	{ClassDocumentation, []string{"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"}},
	{ClassBenchmark, []string{"198.18.0.0/15", "2001:2::/48"}},
	{Class6to4, []string{"192.88.99.0/24", "2002::/16"}},
	{ClassTeredo, []string{"2001::/32"}},
	{ClassNAT64, []string{"64:ff9b::/96", "64:ff9b:1::/48"}},
	// The compatible form is ::/96, without the two addresses above.
	{ClassMapped, []string{"::ffff:0:0/96", "::ffff:0:0:0/96", "::/96"}},
	{ClassMulticast, []string{"224.0.0.0/4", "ff00::/8"}},
	{ClassBroadcast, []string{"255.255.255.255/32"}},
	{ClassReserved, []string{"192.0.0.0/24", "240.0.0.0/4", "2001::/23"}},
	// All global unicast addresses of IPv6 are in here: RFC 4291, section 2.4.
	{ClassPublic, []string{"2000::/3", "0.0.0.0/0"}},
})

func parseBlocks(groups []struct {
	class    Class
	prefixes []string
}) []block {
	var parsed []block
	for _, group := range groups {
		for _, prefix := range group.prefixes {
			parsed = append(parsed, block{netip.MustParsePrefix(prefix), group.class})
		}
	}
	return parsed
}

// Classify says what kind of place an address is. An address with a zone is
// link-local whatever it says, since only the wire gives a zone its meaning.
func Classify(addr netip.Addr) Class {
	if !addr.IsValid() {
		return ClassInvalid
	}
	if addr.Zone() != "" {
		return ClassLinkLocal
	}
	for _, b := range blocks {
		// Prefix.Contains knows an IPv4 prefix from a mapped address.
		if b.prefix.Contains(addr) {
			return b.class
		}
	}
	return ClassReserved
}
