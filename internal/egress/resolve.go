package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Resolver finds the addresses of a name, once for each request. The name is
// absolute: no search list applies. No address is an answer too, and so is a
// [*net.DNSError]. It must return when the context is done.
type Resolver interface {
	Lookup(ctx context.Context, name string) ([]netip.Addr, error)
}

// NetResolver looks names up with r; nil for the host's own resolver, asked
// without the C library, which cannot be interrupted.
//
// An IPv6 answer that maps an IPv4 address (::ffff:192.0.2.1) comes from package
// net as that IPv4 address. It is judged and dialled as such.
//
// localhost is the loopback and nobody is asked for it: RFC 6761, section 6.3.
func NetResolver(r *net.Resolver) Resolver {
	if r == nil {
		r = &net.Resolver{PreferGo: true}
	}
	return netResolver{r}
}

type netResolver struct{ r *net.Resolver }

// Lookup asks for both families at once.
func (n netResolver) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	addrs, err := n.ask(ctx, name)
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, err
}

func (n netResolver) ask(ctx context.Context, name string) ([]netip.Addr, error) {
	if !strings.Contains(name, ".") {
		// Package net finds the names of the hosts file with a dot at their end, but
		// not those that are one label.
		if addrs, err := hostsFile.LookupNetIP(ctx, "ip", name); err == nil {
			return addrs, nil
		}
	}
	// With the dot at its end a name is never completed from the host's search
	// list, which would look up another name than was judged.
	return n.r.LookupNetIP(ctx, "ip", name+".")
}

// hostsFile knows what is in the host's file of names, since it reaches no name
// server.
var hostsFile = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
	return nil, errNoServer
}}

var errNoServer = errors.New("name servers are not asked")

// Answer is one address of a name and what became of it.
type Answer struct {
	Addr netip.Addr
	// Class is the address's.
	Class Class
	// Allowed says whether the request may be sent there.
	Allowed bool
}

// maxAnswers bounds how many addresses of a name are looked at. The largest
// services have a dozen.
const maxAnswers = 64

// resolve gives the addresses of a target, each judged. A literal is its own.
func (b *Broker) resolve(ctx context.Context, target Target) ([]Answer, *Error) {
	addrs := []netip.Addr{target.addr}
	if !target.addr.IsValid() {
		var err error
		if addrs, err = b.resolver.Lookup(ctx, target.Name()); err != nil {
			return nil, lookupFailed(ctx, target, err)
		}
	}
	if len(addrs) == 0 {
		return nil, fail(KindName, nil, "the name %s has no address", target.Name())
	}
	addrs = addrs[:min(len(addrs), maxAnswers)]
	answers := make([]Answer, 0, len(addrs))
	public := false
	for _, addr := range addrs {
		class, allowed := b.policy.Judge(target, addr)
		answers = append(answers, Answer{addr, class, allowed})
		public = public || class == ClassPublic
	}
	// An address that is listed by itself is meant, whoever has it.
	if !public || target.addr.IsValid() {
		return answers, nil
	}
	own, err := b.own()
	if err != nil {
		return nil, fail(KindLookup, err, "the host cannot tell its own addresses from others, so that no name can be reached")
	}
	for i, a := range answers {
		if a.Class == ClassPublic && slices.Contains(own, a.Addr) {
			answers[i] = Answer{a.Addr, ClassOwn, b.policy.judgeAs(target, a.Addr, ClassOwn)}
		}
	}
	return answers, nil
}

// interfaceAddrs gives the addresses of this host's network interfaces, without
// zones.
func interfaceAddrs() ([]netip.Addr, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.Addr, 0, len(found))
	for _, a := range found {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			addrs = append(addrs, prefix.Addr().Unmap())
		}
	}
	return addrs, nil
}

func lookupFailed(ctx context.Context, target Target, err error) *Error {
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return ended(ctx, KindName, err, "the name %s does not exist", target.Name())
	}
	// The cause names the host's own servers, which are none of the guest's
	// business.
	const text = "the name %s could not be looked up; it may exist, try again later"
	// A resolver may notice that the time is over before the context does.
	if deadline, bounded := ctx.Deadline(); ctx.Err() != nil || bounded && !time.Now().Before(deadline) {
		return ended(ctx, KindLookup, err, text, target.Name())
	}
	return fail(KindLookup, err, text, target.Name())
}

// reachable gives the addresses that may be dialled. It refuses when there is
// none. A name with some of each is reached at those that may be: the others
// are never dialled, so they do no harm.
func reachable(target Target, answers []Answer) ([]netip.AddrPort, *Error) {
	var addrs []netip.AddrPort
	for _, answer := range answers {
		if answer.Allowed {
			addrs = append(addrs, netip.AddrPortFrom(answer.Addr, target.Port()))
		}
	}
	if len(addrs) > 0 {
		return addrs, nil
	}
	class := answers[0].Class
	// Which address it is, is known to the host program by its observations. A
	// guest with a name server of its own could ask for the host's, one by one.
	told := class
	if told == ClassOwn {
		told = ClassPrivate
	}
	e := fail(KindAddress, nil, "%s has no public address but one of the kind %s, which is not allowed; %s",
		target.Name(), told, "the host program can allow private targets for a host")
	e.Class = class
	return nil, e
}
