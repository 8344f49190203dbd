package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
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
// An IPv6 answer that maps an IPv4 address comes from package net as that IPv4
// address. It is judged and dialled as such.
func NetResolver(r *net.Resolver) Resolver {
	if r == nil {
		r = &net.Resolver{PreferGo: true}
	}
	return netResolver{r}
}

type netResolver struct{ r *net.Resolver }

// Lookup asks for both families at once.
func (n netResolver) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	// With the dot at its end a name is never completed from the host's search
	// list, which would look up another name than was judged.
	addrs, err := n.r.LookupNetIP(ctx, "ip", name+".")
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, err
}

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
	for _, addr := range addrs {
		class, allowed := b.policy.Judge(target, addr)
		answers = append(answers, Answer{addr, class, allowed})
	}
	return answers, nil
}

func lookupFailed(ctx context.Context, target Target, err error) *Error {
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return ended(ctx, KindName, err, "the name %s does not exist", target.Name())
	}
	// The cause names the host's own servers, which are none of the guest's
	// business.
	return ended(ctx, KindName, err, "the name %s could not be looked up", target.Name())
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
	// Which address it is, is known to the host program by its observations.
	e := fail(KindAddress, nil, "%s has no public address but one of the kind %s, which is not allowed; %s",
		target.Name(), class, "the host program can allow private targets for a host")
	e.Class = class
	return nil, e
}
