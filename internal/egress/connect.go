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

// maxAttempts bounds how many addresses of a host are tried.
const maxAttempts = 4

// connect dials the addresses in their order until one answers. Each has an
// equal share of the time that is left, so that one that is silent does not
// keep the next from its turn.
func (b *Broker) connect(ctx context.Context, target Target, addrs []netip.AddrPort) (net.Conn, netip.AddrPort, *Error) {
	addrs = addrs[:min(len(addrs), maxAttempts)]
	var first error
	for i, addr := range addrs {
		if ctx.Err() != nil {
			break
		}
		conn, err := b.attempt(ctx, addr, len(addrs)-i)
		if err == nil {
			return conn, addr, nil
		}
		if first == nil {
			first = err
		}
	}
	why := "the connection failed"
	var number syscall.Errno
	if errors.As(first, &number) {
		why = number.Error()
	}
	return nil, netip.AddrPort{}, ended(ctx, KindConnect, first, "could not connect to %s at %s: %s", target.Name(), addrs[0], why)
}

func (b *Broker) attempt(ctx context.Context, addr netip.AddrPort, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	return b.dial(ctx, addr)
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
