package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/maf-sandbox/maf-sandbox-go/internal/speakfirst"
)

// maxReasonBytes bounds the text beside a status code.
const maxReasonBytes = 128

// packedSlack is more than gzip adds to what it cannot pack, 5 bytes for each
// block of 64 KiB (RFC 1951, section 3.2.4), for all sizes of maxBodyBytes.
const packedSlack = 128 << 10

var errSecondConnection = errors.New("a second connection was asked for")

// exchange sends one request over a connection and reads the answer whole. The
// connection is of no further use.
//
// The transport is made for this one connection: it has no proxy, no pool, no
// second address and nothing to remember.
func (b *Broker) exchange(ctx context.Context, conn net.Conn, target Target, request *Request, header http.Header, into *collector) (*Response, *Error) {
	url, same := target.url()
	if !same {
		return nil, fail(KindMalformed, nil, "the URL cannot be requested")
	}
	unpack := request.Unpack && header.Get("Accept-Encoding") == "" && request.Method != http.MethodHead
	if unpack {
		header.Set("Accept-Encoding", "gzip")
	}
	outgoing := (&http.Request{
		Method: request.Method, URL: url, Host: target.Name(), Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}).WithContext(ctx)
	if len(request.Body) > 0 {
		outgoing.Body, outgoing.ContentLength = io.NopCloser(bytes.NewReader(request.Body)), int64(len(request.Body))
	}
	transport := transportOver(speakfirst.Conn(conn))
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(outgoing)
	if err != nil {
		return nil, noAnswer(ctx, target, err)
	}
	defer func() { _ = answer.Body.Close() }()
	// A server that sees the connection end with the time may still answer
	// that end: what comes then is no answer to the request.
	if err := ctx.Err(); err != nil {
		return nil, noAnswer(ctx, target, err)
	}
	if answer.StatusCode < http.StatusContinue { // net/http takes any three digits
		return nil, fail(KindConnect, nil, "the answer of %s is not HTTP", target.Name())
	}
	if answer.StatusCode == http.StatusSwitchingProtocols {
		return nil, fail(KindConnect, nil, "%s answered in another protocol than was asked for", target.Name())
	}
	unpack = unpack && isGzip(answer.Header["Content-Encoding"]) && answer.ContentLength != 0
	if unpack {
		answer.Header.Del("Content-Encoding")
		answer.Header.Del("Content-Length")
	}
	fields, failure := responseFields(answer.Header)
	if failure != nil {
		return nil, failure
	}
	response := &Response{Status: answer.StatusCode, Reason: reasonText(answer), Header: fields, URL: target.String()}
	if failure := into.begin(response); failure != nil {
		return nil, failure
	}
	if response.Body, failure = b.readBody(ctx, target, answer, unpack, into); failure != nil {
		return nil, failure
	}
	// A body without a length ends with its connection, whoever ended that.
	if err := ctx.Err(); err != nil {
		return nil, noAnswer(ctx, target, err)
	}
	return response, nil
}

// transportOver speaks HTTP/1.1 over a connection that is there already.
func transportOver(conn net.Conn) *http.Transport {
	give := func(context.Context, string, string) (net.Conn, error) {
		if conn == nil {
			return nil, errSecondConnection
		}
		given := conn
		conn = nil
		return given, nil
	}
	t := &http.Transport{
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: MaxHeaderBytes,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	// A target that is secure has a connection that is already.
	t.DialContext, t.DialTLSContext = give, give
	return t
}

func noAnswer(ctx context.Context, target Target, err error) *Error {
	// net/http has no type for this one; a test holds the text.
	if strings.Contains(err.Error(), "response headers exceeded") {
		return ended(ctx, KindTooLarge, err, "the header of %s's answer is larger than %d bytes", target.Name(), MaxHeaderBytes)
	}
	var operation *net.OpError
	if errors.As(err, &operation) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ended(ctx, KindConnect, err, "%s closed the connection without an answer", target.Name())
	}
	return ended(ctx, KindConnect, err, "the answer of %s is not HTTP", target.Name())
}

// isGzip knows both names of the coding: RFC 9110, section 8.4.1.3. An answer that
// was packed several times is not for us to unpack.
func isGzip(codings []string) bool {
	return len(codings) == 1 && (strings.EqualFold(codings[0], "gzip") || strings.EqualFold(codings[0], "x-gzip"))
}

// readBody reads an answer's body, unpacked if that was asked for. The limit
// counts what it grows to, so a small body that unpacks to a large one stops
// there.
func (b *Broker) readBody(ctx context.Context, target Target, answer *http.Response, unpack bool, into *collector) ([]byte, *Error) {
	limit := b.limits.ResponseBody
	tooLarge := func() *Error {
		return fail(KindTooLarge, nil, "the answer of %s is larger than %d bytes", target.Name(), limit)
	}
	// The length of an answer to HEAD is that of another answer.
	if answer.ContentLength > limit && answer.Request.Method != http.MethodHead {
		return nil, tooLarge()
	}
	var from io.Reader = answer.Body
	bounded := &io.LimitedReader{N: limit + packedSlack}
	length := answer.ContentLength
	if answer.Request.Method == http.MethodHead {
		length = 0
	}
	if unpack {
		length = -1
		// Packed, it may be a little larger, but not without end: a stream of
		// nothing unpacks to nothing.
		bounded.R = answer.Body
		packed, err := gzip.NewReader(bounded)
		if errors.Is(err, io.EOF) {
			return nil, nil // no body at all
		}
		if err != nil {
			return nil, ended(ctx, KindConnect, err, "the answer of %s cannot be unpacked", target.Name())
		}
		from = packed
	}
	body, err := into.read(from, length, limit)
	switch {
	case errors.Is(err, errNoRoom):
		return nil, fail(KindNoRoom, nil, "the answer of %s was given up: the host has as many bytes of answers as it takes for all sandboxes together; "+
			"the request had been sent; try again later", target.Name())
	case int64(len(body)) > limit, bounded.N <= 0: // which may look like the end
		return nil, tooLarge()
	case err != nil:
		return nil, ended(ctx, KindConnect, err, "the answer of %s ended before it was complete", target.Name())
	}
	return body, nil
}

// reasonText is what stands beside the status code.
func reasonText(answer *http.Response) string {
	_, text, _ := strings.Cut(answer.Status, " ")
	return plain(latin1Text(text[:min(len(text), maxReasonBytes)]))
}
