package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Dial connects to an address; it must not look anything up and must return
// when the context is done.
type Dial func(ctx context.Context, addr netip.AddrPort) (net.Conn, error)

func dialTCP(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialTCP(ctx, "tcp", netip.AddrPort{}, addr)
	if err != nil {
		return nil, err // not conn: a nil pointer in it is no nil interface
	}
	return conn, nil
}

const (
	// maxAttempts bounds how many addresses of a host are tried.
	maxAttempts = 4
	// attemptDelay is how long an address is tried before the next one is tried
	// beside it: RFC 8305, section 5.
	attemptDelay = 250 * time.Millisecond
)

// attempt is what became of dialling an address.
type attempt struct {
	conn net.Conn
	addr netip.AddrPort
	err  error
}

// connect dials the addresses in turn until one answers, and the next one beside
// it when one is silent: a family that leads nowhere costs [attemptDelay] and no
// more. Nothing that was begun is left when it returns.
func (b *Broker) connect(ctx context.Context, target Target, addrs []netip.AddrPort) (net.Conn, netip.AddrPort, *Error) {
	addrs = alternate(addrs)
	addrs = addrs[:min(len(addrs), maxAttempts)]
	racing, end := context.WithCancel(ctx)
	attempts, running := make(chan attempt), 0
	defer func() {
		end()
		for ; running > 0; running-- {
			if late := <-attempts; late.err == nil {
				_ = late.conn.Close()
			}
		}
	}()
	turn := time.NewTimer(0)
	defer turn.Stop()
	var failed []error
	for {
		if ctx.Err() != nil {
			addrs = nil
		}
		next := turn.C
		if len(addrs) == 0 {
			if running == 0 {
				return nil, netip.AddrPort{}, noConnection(ctx, target, failed)
			}
			next = nil
		}
		select {
		case <-next:
			running++
			go func(addr netip.AddrPort) { attempts <- b.attempt(racing, addr) }(addrs[0])
			addrs = addrs[1:]
			turn.Reset(attemptDelay)
		case got := <-attempts:
			running--
			if got.err == nil {
				return got.conn, got.addr, nil
			}
			failed = append(failed, got.err)
			turn.Reset(0)
		}
	}
}

// attempt dials. A panic of the dialler's is an error, as everywhere in a request.
func (b *Broker) attempt(ctx context.Context, addr netip.AddrPort) (made attempt) {
	defer func() {
		if fault := recover(); fault != nil {
			made = attempt{addr: addr, err: faulty(fault)}
		}
	}()
	conn, err := b.dial(ctx, addr)
	return attempt{conn, addr, err}
}

// alternate orders addresses so that the families take turns, beginning with that
// of the first: RFC 8305, section 4.
func alternate(addrs []netip.AddrPort) []netip.AddrPort {
	if len(addrs) == 0 {
		return nil
	}
	var families [2][]netip.AddrPort
	for _, addr := range addrs {
		family := 0
		if addr.Addr().Is4() != addrs[0].Addr().Is4() {
			family = 1
		}
		families[family] = append(families[family], addr)
	}
	ordered := make([]netip.AddrPort, 0, len(addrs))
	for i := range addrs {
		for _, family := range families {
			if i < len(family) {
				ordered = append(ordered, family[i])
			}
		}
	}
	return ordered
}

// noConnection says why no address could be connected to. It names none: those of
// a name may be the organisation's own affair, and a literal is its own name.
func noConnection(ctx context.Context, target Target, failed []error) *Error {
	// Where nobody listens, somebody is there: that says more than silence.
	for _, err := range failed {
		if errors.Is(err, syscall.ECONNREFUSED) {
			return ended(ctx, KindRefused, err, "could not connect to %s on port %d: %s", target.Name(), target.Port(), syscall.ECONNREFUSED)
		}
	}
	var first error // none when the time was over before
	if len(failed) > 0 {
		first = failed[0]
	}
	var fault *Error
	if errors.As(first, &fault) {
		return fault
	}
	why := "the connection failed"
	var number syscall.Errno
	if errors.As(first, &number) {
		why = number.Error()
	}
	return ended(ctx, KindConnect, first, "could not connect to %s on port %d: %s", target.Name(), target.Port(), why)
}

// secure makes the connection a TLS one with a server that proves to be the
// target. On an error the connection is still the caller's to close.
func (b *Broker) secure(ctx context.Context, target Target, conn net.Conn) (net.Conn, *Error) {
	name := target.host.String()
	if target.addr.IsValid() {
		name = target.addr.String()
	}
	secured := tls.Client(conn, &tls.Config{
		ServerName: name,
		RootCAs:    b.roots,
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
	})
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, ended(ctx, KindTLS, err, "no secure connection to %s: %s", target.Name(), tlsReason(err))
	}
	return secured, nil
}

// tlsReason says what was wrong with the server. Other errors name addresses of
// this host.
func tlsReason(err error) string {
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &certificate):
		return certificate.Error()
	case errors.As(err, &alert):
		return alert.Error()
	case errors.As(err, &record):
		return "the server does not speak TLS"
	default:
		return "the handshake failed"
	}
}
